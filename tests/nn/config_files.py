"""Contents of ``config.json`` for small networks."""

SIZES = {
    "vocab_size": 50,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
}
BERT = SIZES | {
    "max_position_embeddings": 9,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
MPNET = SIZES | {
    "model_type": "mpnet",
    "hidden_act": "gelu",
    "max_position_embeddings": 34,
    "relative_attention_num_buckets": 32,
    "layer_norm_eps": 1e-5,
}
DEBERTA = SIZES | {
    "model_type": "deberta-v2",
    "hidden_act": "gelu",
    "max_position_embeddings": 12,
    "max_relative_positions": -1,
    "position_buckets": 6,  # distances from 4 on share rows
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": "p2c|c2p",
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-7,
}
QWEN3 = {
    "model_type": "qwen3",
    "vocab_size": 40,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 4,  # 16 heads of width 4 differ from 24
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "rope_theta": 100.0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
