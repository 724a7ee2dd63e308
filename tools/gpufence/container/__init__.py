"""Containers: found, named, described and tidied up, from state/, config/ and machine/."""
