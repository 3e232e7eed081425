"""The hint for an unknown name."""

from advisor.errors import did_you_mean


def test_the_closest_known_name_is_suggested_in_its_own_spelling() -> None:
    assert did_you_mean("memory_gb", ["memory_gib", "vcpus"]) == "did you mean memory_gib?"
    assert did_you_mean("STANDARD_b2", ["Standard_B2s", "g5.xlarge"]) == "did you mean Standard_B2s?"
    assert did_you_mean("ND96_v5", ["Standard_ND96_v5", "g5"], cutoff=0.95) == "did you mean Standard_ND96_v5?"
    assert did_you_mean("g5.xlarg", ["g5.xlarge", "g6.xlarge", "zzz"], most=2) == "did you mean g5.xlarge, g6.xlarge?"
    # 2 x 4 common letters of 5 + 5 are similar by 0.8.
    assert did_you_mean("abcdx", ["abcde"], otherwise="none", cutoff=0.81) == "none"
    assert did_you_mean("abcdx", ["abcde"], otherwise="none", cutoff=0.8) == "did you mean abcde?"


def test_known_names_are_listed_if_none_is_close() -> None:
    assert did_you_mean("zzz", ["b", "a"]) == "use one of b, a"
    assert did_you_mean("zzz", {"b", "a"}) == "use one of a, b"
    assert did_you_mean("zzz", map(str, range(31))).endswith(", ...")
    assert did_you_mean("zzz", ["b", "a"], otherwise="see the manual") == "see the manual"
    assert did_you_mean("zzz", []) == ""
