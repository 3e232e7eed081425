"""What the service counts, as Prometheus reads it."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from advisor.serve.catalog_in_force import PricesInForce
from advisor.serve.pool import Pool

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counts of one service."""

    def __init__(self, *, prices: PricesInForce, pool: Pool) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "advise_requests", "Requests answered.", ("method", "path", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "advise_request_seconds", "From request to answer.", ("path",), buckets=_SECONDS, registry=self._registry
        )
        for name, help_text, read in (
            ("prices_loaded_timestamp_seconds", "When prices were loaded.", lambda: prices.loaded_at.timestamp()),
            ("prices_stale", "1: an edit is wrong, older prices are in force.", lambda: float(bool(prices.problem))),
            ("prices_failed_loads", "Edits that were wrong.", lambda: float(prices.failure_count)),
            ("in_flight", "Requests waiting or worked on.", lambda: float(pool.asked_count)),
            ("workers_alive", "Workers that can be asked.", lambda: float(pool.living_count)),
            ("workers_replaced", "Workers ended: killed, timed out or client gone.", lambda: float(pool.died_count)),
        ):
            Gauge(f"advise_{name}", help_text, registry=self._registry).set_function(read)

    def answered(self, *, method: str, path: str, status: int, seconds: float) -> None:
        """Count one answer; `path` is one of few, whatever was asked for."""
        self._requests.labels(method, path, status).inc()
        self._seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self._registry)
