"""What the user asks for in, the job to be done out."""

from advisor.errors import UsageError
from advisor.records.answer import Job
from advisor.records.options import Options, PriceChoice
from advisor.records.price import PriceKind

ASSUMED_SAMPLES = 1_000_000
_PRICE_KINDS: dict[PriceChoice, PriceKind] = {
    "on-demand": "on_demand",
    "spot": "spot",
    "commit-1y": "commit_1y",
    "commit-3y": "commit_3y",
}


def job_of(options: Options, *, source_batch: int) -> Job:
    """The job: `--samples` x `--epochs`, or `--steps` of the batch, or an assumed million samples.

    Steps need one batch size: that of `--batch` where it is a single number, else the source's own.
    """
    _check_sizes(options)
    text = options.batch.strip()
    batch = text or (str(source_batch) if options.mode == "training" else "auto")
    if options.steps is not None:
        samples = options.steps * (int(text) if text.isdigit() else source_batch)
    else:
        samples = (options.samples or ASSUMED_SAMPLES) * (options.epochs or 1)
    return Job(
        mode=options.mode,
        samples=samples,
        epochs=options.epochs,
        steps=options.steps,
        assumed=options.samples is None and options.steps is None,
        batch=batch,
        precision=options.precision,
        layout=options.layout,
        compile=options.compile,
        price=_PRICE_KINDS[options.price],
    )


def _check_sizes(options: Options) -> None:
    for name in ("samples", "epochs", "steps"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name} {value}: a job has at least 1", hint=f"leave --{name} out or write 1 or more")
    if options.steps is not None and (options.samples is not None or options.epochs is not None):
        raise UsageError("--steps and --samples or --epochs both give the size of the job", hint="keep one of them")
    if options.epochs is not None and options.samples is None:
        raise UsageError("--epochs needs the number of samples in one", hint="add --samples N")
