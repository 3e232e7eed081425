"""Computes the time and the cost of a job on 1, 2, 4, ... machines of the best offer."""

from collections.abc import Sequence

from advisor.cost.machine_curve import machine_sweep
from advisor.cost.rank_offers import Ranking
from advisor.cost.selection import Selection
from advisor.records.answer import Job, MachineSweep
from advisor.records.options import Options
from advisor.records.prediction import Anchor, Fleet, IndexArray
from advisor.records.price import Catalog
from advisor.records.workload import Workload
from advisor.scale.predict_on_all import predict_by_machines


def sweep_machines(
    workload: Workload,
    ranking: Ranking,
    *,
    selection: Selection,
    fleet: Fleet,
    batches: IndexArray,
    catalog: Catalog,
    options: Options,
    job: Job,
    anchors: Sequence[Anchor] = (),
) -> MachineSweep | None:
    """Return the curve over the number of machines for the first quote whose network is known.

    Return None unless several machines were requested. `fleet` belongs to the offers of `selection`. Each number of
    machines has its own best plan and batch.
    """
    if options.max_machines == 1 or not workload.batch_is_affine:
        return None
    place_of = {priced.offer.id: place for place, priced in enumerate(selection.priced)}
    for quote in ranking.quotes:
        place = place_of[quote.id]
        device = fleet.devices[int(fleet.device_index[place])]
        if device.network_bytes_per_s is not None:
            predictions = predict_by_machines(
                workload,
                device=device,
                efficiencies=catalog.efficiencies,
                batches=batches,
                options=options,
                job=job,
                anchors=anchors,
            )
            return machine_sweep(
                quote, selection.priced[place], predictions=predictions, job=job, billing=catalog.billing
            )
    return None
