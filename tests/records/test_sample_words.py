from advisor.records.generation import Generation
from advisor.records.sample_words import at_batch_text, batch_text, samples_text

SERVED = Generation(prompt_tokens=8, output_tokens=2)


def test_a_step_has_samples_and_a_language_model_in_service_requests() -> None:
    assert (samples_text(1_000, None), samples_text(1, None)) == ("1,000 samples", "1 sample")
    assert (samples_text(1_000, SERVED), samples_text(1, SERVED)) == ("1,000 requests", "1 request")
    assert (batch_text(8, None), batch_text(8, SERVED)) == ("batch 8", "8 requests in flight")
    assert (at_batch_text(8, None), at_batch_text(1, SERVED)) == ("at batch 8", "with 1 request in flight")
