"""The publish gate: our bits against the owner library's. Not here: advice that refuses nothing (`advice`)."""
