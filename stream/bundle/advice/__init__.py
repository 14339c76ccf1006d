"""What a build reports to the lender about model, pool and rules. Not here: the checks that refuse a bundle (`gate`)."""
