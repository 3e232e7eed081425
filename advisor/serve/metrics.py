"""Counts requests and states of the service for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from advisor.serve.catalog_in_force import PricesInForce
from advisor.serve.pool import Pool

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The metrics of one service."""

    def __init__(self, *, prices: PricesInForce, pool: Pool) -> None:
        self._registry = CollectorRegistry()
        labels = ("method", "path", "status")
        self._requests = Counter("advise_requests", "Requests answered.", labels, registry=self._registry)
        self._seconds = Histogram(
            "advise_request_seconds",
            "Time from request to answer.",
            ("path",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        loaded_help = "Time at which the prices were loaded."
        stale_help = "1 if a later edit has a mistake and older prices are in force."
        replaced_help = "Workers replaced because they were killed, timed out or lost their client."
        for name, help_text, read in (
            ("prices_loaded_timestamp_seconds", loaded_help, lambda: prices.loaded_at.timestamp()),
            ("prices_stale", stale_help, lambda: float(bool(prices.problem))),
            ("prices_failed_loads", "Edits of price files that had a mistake.", lambda: float(prices.failure_count)),
            ("in_flight", "Requests waiting or in progress.", lambda: float(pool.pending_count)),
            ("workers_alive", "Workers alive.", lambda: float(pool.living_count)),
            ("workers_replaced", replaced_help, lambda: float(pool.died_count)),
        ):
            Gauge(f"advise_{name}", help_text, registry=self._registry).set_function(read)

    def answered(self, *, method: str, path: str, status: int, seconds: float) -> None:
        """Count one answer; `path` must be from a small set, such as the routes and "other"."""
        self._requests.labels(method, path, status).inc()
        self._seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """Return the metrics in the Prometheus text format."""
        return generate_latest(self._registry)
