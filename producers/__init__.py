"""FACING IN. The world speaks, we write it down."""
