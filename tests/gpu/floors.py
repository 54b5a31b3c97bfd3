"""The rates that a device reaches: bytes per second of a copy, operations per second of a product."""

import time

import torch

from reference import synchronize


def seconds(device, work, rounds=10):
    """Returns the time of one round, the mean of several after two."""
    for _ in range(2):
        work()
    synchronize(device)
    start = time.monotonic()
    for _ in range(rounds):
        work()
    synchronize(device)
    return (time.monotonic() - start) / rounds


def bandwidth(device, small):
    """Returns the bytes per second that a copy reads and writes."""
    size = 1 << (24 if small else 32)
    source = torch.empty(size, dtype=torch.uint8, device=device).random_()
    target = torch.empty_like(source)
    return 2 * size / seconds(device, lambda: target.copy_(source))


def product_rate(device, small):
    """Returns the operations per second of a square product in bf16."""
    side = 256 if small else 8192
    a, b = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    return 2 * side**3 / seconds(device, lambda: a @ b)


def parameters(config):
    """Returns the numbers of a model that a decode step reads: all, and those of one token's experts."""
    hidden, layers, head = config.hidden_size, config.num_hidden_layers, config.head_dim
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    attention = hidden * head * (2 * heads + 2 * groups)
    experts = getattr(config, "num_experts", 0)
    if experts:
        one = 3 * hidden * config.moe_intermediate_size
        shared, active = hidden * experts, config.num_experts_per_tok
        whole, few = shared + experts * one, shared + active * one
    else:
        whole = few = 3 * hidden * config.intermediate_size
    head_matrix = hidden * config.vocab_size
    return layers * (attention + whole) + head_matrix, layers * (attention + few) + head_matrix


def decode_bytes(config, sequences, positions, weight_bytes=2):
    """Returns the bytes that a decode step reads: weights of `weight_bytes` each, and keys and values in bf16.

    The rows of a mixture choose experts at random; the expected number of different ones counts.
    """
    whole, few = parameters(config)
    experts = getattr(config, "num_experts", 0)
    if experts:
        chosen = 1 - (1 - config.num_experts_per_tok / experts) ** sequences
        base = (experts * few - config.num_experts_per_tok * whole) / (experts - config.num_experts_per_tok)
        weights = base + (whole - base) * chosen
    else:
        weights = whole
    return weight_bytes * weights + sequences * positions * pair_bytes(config)


def pair_bytes(config):
    """Returns the bytes of a position's keys and values, in bf16."""
    return 4 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim


def prefill_operations(config, tokens):
    """Returns the operations of a prompt: two per weight and token, and attention's products."""
    _, few = parameters(config)
    matrices = few - config.hidden_size * config.vocab_size
    attention = 2 * config.num_hidden_layers * config.num_attention_heads * config.head_dim * tokens * tokens
    return 2 * matrices * tokens + attention + 2 * config.hidden_size * config.vocab_size
