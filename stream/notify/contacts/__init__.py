"""Contacts of applicants from files, tables and services. Not here: what a letter says (`letters`)."""
