"""Writes a llama of random weights with a few words and all bytes, as GGUF: python tiny_llama.py FILE SEED."""

from __future__ import annotations

import sys

import gguf
import numpy as np

WORDS = ("▁yes", "▁no", "▁the", "▁parcel", "▁is", "▁here", "▁soon", "▁late", ".", ",", "▁Köln", "▁한국", "▁🙂", "\n")
WIDTH, INNER, HEADS, CONTEXT = 64, 128, 2, 512


def main(path: str, seed: int) -> None:
    """Write the file."""
    random = np.random.default_rng(seed)
    tokens = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % n for n in range(256)), *(word.encode() for word in WORDS)]
    kind = gguf.TokenType
    kinds = [kind.UNKNOWN, kind.CONTROL, kind.CONTROL, *[kind.BYTE] * 256, *[kind.NORMAL] * len(WORDS)]
    file = gguf.GGUFWriter(path, "llama")
    file.add_name("tiny")
    file.add_context_length(CONTEXT)
    file.add_embedding_length(WIDTH)
    file.add_block_count(1)
    file.add_feed_forward_length(INNER)
    file.add_head_count(HEADS)
    file.add_head_count_kv(HEADS)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_dimension_count(WIDTH // HEADS)
    file.add_vocab_size(len(tokens))
    file.add_file_type(0)
    file.add_tokenizer_model("llama")
    file.add_token_list(tokens)
    file.add_token_scores([0.0] * 259 + [-float(n) for n in range(len(WORDS))])
    file.add_token_types(kinds)
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)
    file.add_unk_token_id(0)

    def add(name: str, *shape: int, scale: float = 0.2) -> None:
        file.add_tensor(name, (random.standard_normal(shape) * scale).astype(np.float32))

    add("token_embd.weight", len(tokens), WIDTH, scale=1.0)
    # It says words and seldom bytes, which alone are no text.
    said = random.standard_normal((len(tokens), WIDTH)) * 0.5
    said[3:259] = said[:2] = 0
    file.add_tensor("output.weight", said.astype(np.float32))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        file.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        add(f"blk.0.{name}.weight", WIDTH, WIDTH)
    add("blk.0.ffn_gate.weight", INNER, WIDTH)
    add("blk.0.ffn_up.weight", INNER, WIDTH)
    add("blk.0.ffn_down.weight", WIDTH, INNER)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
