"""FACING OUT. From a lane to a provider."""
