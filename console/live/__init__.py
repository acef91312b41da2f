"""Websockets: they say what changed and carry small numbers; HTML comes from views."""
