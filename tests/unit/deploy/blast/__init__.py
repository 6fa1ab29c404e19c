"""The blast's judgement, plans and pictures."""
