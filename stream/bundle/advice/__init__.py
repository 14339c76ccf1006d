"""What a build tells the lender of model, pool and rules. Not here: what refuses a bundle (`gate`)."""
