"""Turns a trainer's configuration file into the model that it fine-tunes and the options that it sets."""

from dataclasses import replace
from pathlib import Path

from advisor.catalog.recipe import read_recipe
from advisor.errors import UsageError
from advisor.records.fine_tuning import Recipe
from advisor.records.flag_values import flag_name, is_given, is_recipe
from advisor.records.options import GivenOptions, Options

_MOST_NAMED = 8


def resolved(source: str, options: Options) -> tuple[str, Options, tuple[str, ...]]:
    """Return the model that a trainer's file fine-tunes, the options with what it sets, and notes on it.

    Options that the user has given win. Any other source is unchanged. Raises `ProfileError` for a value that is not
    predicted, and `UsageError` if the model is not known.
    """
    if not is_recipe(source):
        if options.model_config is not None:
            raise UsageError(f"--model-config: {source} says itself which model it is", hint="leave --model-config out")
        return source, options, ()
    recipe = read_recipe(Path(source))
    model = options.model_config or recipe.model
    if not model:
        raise UsageError(
            f"{source}: the sizes of its model are not known", hint="add --model-config, its config.json or its id"
        )
    typed = options.given if isinstance(options, GivenOptions) else frozenset()
    given = {name for name in recipe.options if name in typed or is_given(options, name)}
    own = {name: value for name, value in recipe.options.items() if name not in given}
    if recipe.batch is not None and not options.batch:
        passes = own.get("accumulate", options.accumulate)
        own["batch"] = str(recipe.batch * passes * (options.gpus or 1))
    if own.get("epochs") is not None and (options.samples is None and own.get("samples") is None):
        del own["epochs"]
    return f"hf:{model}", replace(options, model_config=None, **own), tuple(_notes(recipe, given))


def _notes(recipe: Recipe, given: set[str]) -> list[str]:
    notes = [f"settings of {recipe.trainer}'s file"]
    if given:
        notes[0] += f", but for {', '.join(sorted(map(flag_name, given)))}"
    if recipe.ignored:
        more = len(recipe.ignored) - _MOST_NAMED
        named = ", ".join(recipe.ignored[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        notes.append(f"its keys without effect on the prediction: {named}")
    return notes
