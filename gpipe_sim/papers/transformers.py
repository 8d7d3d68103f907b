"""Closed forms for Transformers, from papers: parameters, FLOPs, and the bytes of activations.

A model has L blocks of h features and a heads, and knows V tokens and s places. A microbatch is b sequences
of s places. The network in a block is 4h wide. Activations are in 2-byte numbers, and dropout keeps a byte
for each entry. What has shape (s, s) for each head is the attention core: the softmax, its dropout, and what
is left of it. ``formulas`` has all of these by name.
"""

from fractions import Fraction

from gpipe_sim.papers.domain import formula


@formula
def transformer_parameters(blocks: int, features: int, tokens: int, sequence: int) -> int:
    """12 L h^2 + 13 L h + (V + s) h: the weights of a GPT whose head shares the embedding's.

    It leaves out the LayerNorm after the last block. Narayanan et al. 2021, arXiv:2104.04473, equation 2.
    """
    return (12 * features + 13) * blocks * features + (tokens + sequence) * features


@formula
def transformer_flops(blocks: int, features: int, tokens: int, sequence: int, batch: int) -> int:
    """96 b s L h^2 (1 + s/6h + V/16Lh): the FLOPs of a step on b sequences that recomputes every block.

    A block runs its forward twice, and its backward takes as long as two; the head is not recomputed.
    Narayanan et al. 2021, arXiv:2104.04473, equation 3.
    """
    return 2 * batch * sequence * features * (8 * blocks * (6 * features + sequence) + 3 * tokens)


@formula
def message_bytes(sequence: int, batch: int, features: int) -> int:
    """2sbh: the bytes of one message from stage to stage, of b sequences, in 2-byte numbers; as many go back.

    Narayanan et al. 2021, arXiv:2104.04473, section 3.2, which counts bsh numbers for each pair of devices
    that follow each other and each microbatch; V stages per device make it V times as many.
    """
    return 2 * sequence * batch * features


@formula
def block_memory(sequence: int, batch: int, features: int, heads: int) -> int:
    """sbh (34 + 5as/h): the bytes that a block saves of one microbatch.

    Korthikanti et al. 2022, arXiv:2205.05198, section 4. They leave out what is small: 1/std of a LayerNorm.
    """
    parts = attention_memory(sequence, batch, features, heads), mlp_memory(sequence, batch, features)
    return sum(parts) + norms_memory(sequence, batch, features)


@formula
def attention_memory(sequence: int, batch: int, features: int, heads: int) -> int:
    """11sbh + 5 a s^2 b: the attention's part of what a block saves, with its dropout, in bytes.

    Its input, the queries, keys and values, the input of its last linear layer, an entry of its dropout (2 +
    6 + 2 + 1), and its core. Korthikanti et al. 2022, arXiv:2205.05198, section 4.
    """
    if features % heads:
        raise ValueError(f"attention needs heads that divide its features (got a = {heads}, h = {features})")
    return 11 * sequence * batch * features + attention_core_memory(sequence, batch, heads)


@formula
def attention_core_memory(sequence: int, batch: int, heads: int) -> int:
    """5 a s^2 b: the bytes of the attention core, which selective recompute frees (2 + 1 + 2 of a s^2 b).

    Korthikanti et al. 2022, arXiv:2205.05198, section 5.
    """
    return 5 * heads * sequence**2 * batch


@formula
def mlp_memory(sequence: int, batch: int, features: int) -> int:
    """19sbh: the part of a block's network, with its dropout, in bytes.

    The inputs of its two linear layers and of the GELU between them, and an entry of dropout (2 + 8 + 8 + 1).
    Korthikanti et al. 2022, arXiv:2205.05198, section 4.
    """
    return 19 * sequence * batch * features


@formula
def norms_memory(sequence: int, batch: int, features: int) -> int:
    """4sbh: the part of a block's two LayerNorms, in bytes, without 1/std.

    Korthikanti et al. 2022, arXiv:2205.05198, section 4.
    """
    return 4 * sequence * batch * features


@formula
def selective_recompute_memory(sequence: int, batch: int, features: int) -> int:
    """34sbh: the bytes that a block saves if its attention core is recomputed.

    Korthikanti et al. 2022, arXiv:2205.05198, section 5.
    """
    return 34 * sequence * batch * features


@formula
def full_recompute_memory(sequence: int, batch: int, features: int) -> int:
    """2sbh: the bytes of a block's input, all that is kept if the whole block is recomputed.

    Korthikanti et al. 2022, arXiv:2205.05198, section 5.
    """
    return 2 * sequence * batch * features


@formula
def selective_recompute_freed(sequence: int, features: int, heads: int) -> Fraction:
    """5as/h over 34 + 5as/h: the share of a block's saved bytes that selective recompute frees.

    Korthikanti et al. 2022, arXiv:2205.05198, section 5: 70% for GPT-3, 65% for a model of 530 billion.
    """
    core = attention_core_memory(sequence, 1, heads)
    return Fraction(core, block_memory(sequence, 1, features, heads))


@formula
def attention_core_flops_share(sequence: int, features: int) -> Fraction:
    """s/(6h+s): the attention core's share of a block's FLOPs, 4 s^2 h b of 24 s h^2 b + 4 s^2 h b.

    If the core's forward runs again, that is this share of a forward, and a third of it of a whole step. For
    GPT-3 it is 2.7% and for a model of 530 billion 1.6%: the numbers that Korthikanti et al. 2022,
    arXiv:2205.05198, section 5, give as what selective recompute costs.
    """
    return Fraction(sequence, 6 * features + sequence)


@formula
def attention_core_bytes_per_flop(features: int, heads: int) -> Fraction:
    """5a/4h: the bytes that recomputing the attention core frees, for each FLOP of its forward.

    5 a s^2 b bytes for 4 s^2 h b FLOPs. Korthikanti et al. 2022, arXiv:2205.05198, section 5, in words.
    """
    return Fraction(5 * heads, 4 * features)


@formula
def mlp_bytes_per_flop(features: int) -> Fraction:
    """19/16h: the bytes that recomputing a block's network would free, for each FLOP of its forward.

    19sbh bytes for 16 s h^2 b FLOPs. Korthikanti et al. 2022, arXiv:2205.05198, section 5, in words.
    """
    return Fraction(19, 16 * features)


@formula
def block_pending_memory(sequence: int, batch: int, features: int) -> int:
    """32sbh: the bytes that a block's linear layers keep from I until W of one microbatch.

    The inputs of four linear layers and the gradients of their outputs. Qi et al. 2024, arXiv:2401.10241,
    table 1. It leaves out the LayerNorms: where their weights wait for W too, that is 8sbh more.
    """
    return 32 * sequence * batch * features
