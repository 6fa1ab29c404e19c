"""Stand-ins for the outside world; they share no code with the rooms."""
