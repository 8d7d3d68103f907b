import pytest

from gpipe_sim.core.actions import Action, B, F, I, Kind, OverlapFB, R, U, W

MAKERS = {"F": F, "B": B, "I": I, "W": W, "R": R, "U": U}


def test_the_alphabet_has_six_kinds_and_a_word_for_each():
    assert "".join(Kind) == "FBIWRU"
    assert [kind.meaning for kind in Kind] == [
        "forward",
        "backward",
        "input gradient",
        "weight gradient",
        "recompute",
        "weight update",
    ]


@pytest.mark.parametrize("letter", MAKERS)
def test_an_action_is_spelled_stage_kind_microbatch(letter):
    action = MAKERS[letter](2, 10)
    assert str(action) == f"2{letter}10"
    assert action == Action(2, Kind(letter), 10)
    assert Action.parse(f"2{letter}10") == action
    assert Action.parse(f" 2{letter}10 ").kind is Kind(letter)


def test_an_action_has_one_part_and_a_pair_has_two_and_pytorchs_spelling():
    pair = OverlapFB(F(0, 3), B(7, 1))
    assert (F(0, 3).parts, pair.parts) == ((F(0, 3),), (F(0, 3), B(7, 1)))
    assert str(pair) == "(0F3;7B1)OVERLAP_F_B"
    assert Action.parse("(0F3;7B1)OVERLAP_F_B") == pair


@pytest.mark.parametrize(
    "text",
    ["", "F0", "0F", "0X0", "0f0", "-1F0", "0F-1", "0F0 0F1", "0 F 0", "1.5F0", "0FB0",
     "(7B1;0F3)OVERLAP_F_B", "(0F3;7I1)OVERLAP_F_B", "(0F3;7B1)", "0SEND_F0", "0F0x"],
)  # fmt: skip
def test_what_is_not_an_action_is_refused_with_an_example(text):
    with pytest.raises(
        ValueError, match="is not an action; write stage, kind, microbatch, such as 2F0"
    ) as error:
        Action.parse(text)
    assert repr(text) in str(error.value)
    assert "F, B, I, W, R, U" in str(error.value)
