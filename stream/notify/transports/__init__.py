"""How a letter leaves: mail, webhook, folder. Not here: what it says (`letters`)."""
