"""Makes the values of a task file, with which an engine such as SkyPilot runs a task.

`engines/` has one file per engine, with these names: `command(task)`, the command that runs its file; `PROVIDERS`, the
providers it rents from; `why_not(machine)`, why it cannot launch a machine ("" if it can); `comments(task)`, notes for
the user, such as what happens to an idle machine; and `task_values(task)`.
"""
