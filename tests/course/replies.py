"""What the tests of all lessons ask of a reply."""

from gpipe_sim.course import Reply, reveal


def assert_says(reply: Reply, verdict: str, words: str) -> None:
    assert (reply.verdict, words in reply.text) == (verdict, True), reply


def assert_each_is_told(wrong: dict, measured: object, within: object = 0) -> None:
    """Each natural wrong guess is wrong, and is told its own sentence."""
    for guess, words in wrong.items():
        reply = reveal(guess, measured, within=within, wrong=wrong).reply
        assert (reply.verdict, reply.text.endswith(words)) == ("not what happened", True), reply
