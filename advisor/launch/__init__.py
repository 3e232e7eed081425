"""A task in, the values of the file with which an engine such as SkyPilot runs it out.

`engines/` has one file for each engine, with `COMMAND`, what runs a task file; `PROVIDERS`, those that it rents from;
`why_not(machine)`, why it cannot launch that ("" where it can); `comments(task)`, what its user must know, such as
what happens to a machine with nothing to do; and `task_values(task)`.
"""
