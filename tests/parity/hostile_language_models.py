"""What makes a folder of a language model one to refuse, for language_models_parity_test.py, and what the refusal names."""

import json
import pathlib

from language_models import BERT, LLAMA_3


def change(path: pathlib.Path, **settings):
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


# What is done to a folder of BERT's or Llama's; and what the refusal names besides the file.
HOSTILE_CONFIGS = [
    (BERT, lambda path: path.write_text("{"), "is not JSON"),
    (BERT, lambda path: path.write_text("[" * 100_000), "nested too deeply"),
    (BERT, lambda path: path.write_text("[1, 2]"), "expected a mapping"),
    (BERT, lambda path: path.write_bytes(b'{"model_type": "bert", "hidden_act": "\xff"}'), "is not JSON"),
    (BERT, lambda path: path.unlink(), "config.json"),
    (BERT, lambda path: change(path, model_type="gpt2"), "model_type"),
    (BERT, lambda path: change(path, hidden_size="768"), "hidden_size"),
    (BERT, lambda path: change(path, hidden_size=-4), "hidden_size"),
    (BERT, lambda path: change(path, hidden_size=33), "heads"),
    (BERT, lambda path: change(path, vocab_size=2**63), "vocab_size"),
    (BERT, lambda path: change(path, vocab_size=1e300), "vocab_size"),
    (BERT, lambda path: change(path, num_hidden_layers=10**9), "num_hidden_layers"),
    (BERT, lambda path: change(path, hidden_act="gelu; import os"), "hidden_act"),
    (BERT, lambda path: change(path, hidden_dropout_prob=1.5), "hidden_dropout_prob"),
    (BERT, lambda path: change(path, layer_norm_eps=-1), "layer_norm_eps"),
    (BERT, lambda path: change(path, pad_token_id=99), "pad_token_id"),
    (BERT, lambda path: change(path, id2label=["a"]), "id2label"),
    (BERT, lambda path: change(path, position_embedding_type="relative_key"), "position_embedding_type"),
    (BERT, lambda path: change(path, vocab_size=98), "word_embeddings"),
    (LLAMA_3, lambda path: change(path, rope_parameters={"rope_type": "longrope", "factor": 2.0}), "rope_parameters.rope_type"),
    (LLAMA_3, lambda path: change(path, rope_parameters={"rope_type": "linear", "factor": 0}), "rope_parameters.factor"),
    (LLAMA_3, lambda path: change(path, rope_parameters={"rope_type": "yarn", "factor": 2.0, "beta_fast": 1, "beta_slow": 2}), "rope_parameters.beta_fast"),
    (LLAMA_3, lambda path: change(path, rope_parameters={"rope_type": "yarn", "factor": 2.0, "truncate": 3}), "rope_parameters.truncate"),
    (LLAMA_3, lambda path: change(path, rope_parameters=[1]), "rope_parameters"),
    (LLAMA_3, lambda path: change(path, num_key_value_heads=3), "num_key_value_heads"),
    (LLAMA_3, lambda path: change(path, head_dim=7), "head_dim"),
]


HOSTILE_INDICES = [
    ("{", "is not JSON"),
    ("[]", "weight_map"),
    ('{"weight_map": {}}', "names no tensor"),
    ('{"weight_map": {"a": 1}}', "'a'"),
    ('{"weight_map": {"a": "../model.safetensors"}}', "beside the index"),
    ('{"weight_map": {"a": "/etc/passwd"}}', "beside the index"),
    ('{"weight_map": {"a": "no.safetensors"}}', "no.safetensors"),
    ('{"weight_map": {"a": "' + "a" * 5000 + '"}}', "names the shard aaa"),
    ('{"weight_map": {"a": "shard.safetensors", "a": "shard.safetensors"}}', "twice"),
    ('{"weight_map": {"a": "shard.safetensors"}}', "'a' is not in shard.safetensors"),
    ('{"weight_map": {"classifier.bias": "shard.safetensors", "classifier.weight": "copy.safetensors"}}', "is in both"),
    ('{"weight_map": ' + '{"a": ' * 5000 + "1" + "}" * 5000 + "}", "nested"),
]
