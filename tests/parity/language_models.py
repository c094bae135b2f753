"""transformers' language models beside the layers that trainrun has for them, in small sizes, and what they read."""

import dataclasses
import pathlib
from collections.abc import Callable

import torch

import transformers
from transformers import (BertConfig, BertForMaskedLM, BertForSequenceClassification, BertForTokenClassification, BertModel, DistilBertConfig,
                          DistilBertForMaskedLM, DistilBertForSequenceClassification, DistilBertForTokenClassification,
                          DistilBertModel, GPT2Config, GPT2LMHeadModel, GPT2Model, LlamaConfig, LlamaForCausalLM,
                          LlamaForSequenceClassification, MistralConfig, MistralForCausalLM,
                          MistralForSequenceClassification, Qwen2Config, Qwen2ForCausalLM,
                          Qwen2ForSequenceClassification, Qwen3Config, Qwen3ForCausalLM,
                          Qwen3ForSequenceClassification, RobertaConfig, RobertaForMaskedLM,
                          RobertaForSequenceClassification, RobertaForTokenClassification, RobertaModel)

transformers.logging.set_verbosity_error()

VOCABULARY = 99
LENGTH = 12
PADDING = 1  # RoBERTa's; to the others it is a token like any

ENCODER = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
           "max_position_embeddings": 40}
DISTILLED = {"vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 40}
GPT2 = {"vocab_size": VOCABULARY, "n_positions": 40, "n_embd": 32, "n_layer": 2, "n_head": 4, "bos_token_id": None, "eos_token_id": None}
LLAMA = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


def rope(**scaling):
    return {"rope_parameters": {"rope_theta": 500000.0, **scaling}}


LLAMA3 = rope(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)


@dataclasses.dataclass(eq=False)
class LanguageModel:
    kind: type  # transformers' class, after which ours is named
    config: Callable
    settings: dict
    label: str = ""
    dropout: tuple[str, ...] = ()  # settings that are 0 where a training is compared
    is_decoder: bool = False

    def __str__(self):
        return self.type + self.label

    @property
    def type(self) -> str:
        return self.kind.__name__

    def make(self, **more):
        """A model with weights that are larger than initial ones, so that all parts have a say in the logits."""
        torch.manual_seed(17)
        model = self.kind(self.config(**(self.settings | more)))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return model.float().eval()

    def saved(self, folder: pathlib.Path, **more):
        """The model, and its folder as transformers writes it."""
        model = self.make(**more)
        model.save_pretrained(folder)
        return model

    def fields(self, num: int = 4) -> dict[str, torch.Tensor]:
        """Token ids and, where the model knows them, types; the attention mask of sequences of different lengths."""
        generator = torch.Generator().manual_seed(5)
        ids = torch.randint(2, VOCABULARY, (num, LENGTH), generator=generator)
        lengths = torch.tensor([LENGTH, 7, 9, 3]).repeat(num)[:num]
        mask = (torch.arange(LENGTH) < lengths[:, None]).long()
        ids = torch.where(mask.bool(), ids, PADDING)
        fields = {"input_ids": ids, "attention_mask": mask}
        if self.type.startswith("Bert"):
            fields["token_type_ids"] = (torch.arange(LENGTH) >= 5).long().expand(num, -1).contiguous()
        return fields


BERT_DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob")
GPT2_DROPOUT = ("resid_pdrop", "embd_pdrop", "attn_pdrop")


def bert(kind, **more):
    return LanguageModel(kind, BertConfig, ENCODER | more, dropout=BERT_DROPOUT)


def roberta(kind, **more):
    return LanguageModel(kind, RobertaConfig, ENCODER | {"type_vocab_size": 1} | more, dropout=BERT_DROPOUT)


def decoder(kind, config, settings, label="", dropout=()):
    return LanguageModel(kind, config, settings, label, dropout, is_decoder=True)


BERT = bert(BertForSequenceClassification, num_labels=3)
GPT = decoder(GPT2LMHeadModel, GPT2Config, GPT2, dropout=GPT2_DROPOUT)
LLAMA_3 = decoder(LlamaForCausalLM, LlamaConfig, LLAMA | LLAMA3, "_llama3")
YARN = rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)
QWEN_3 = decoder(Qwen3ForCausalLM, Qwen3Config, LLAMA | YARN | {"head_dim": 16}, "_yarn")
QWEN = decoder(Qwen2ForCausalLM, Qwen2Config, LLAMA | {"tie_word_embeddings": True})
PADDED = LLAMA | {"pad_token_id": PADDING}
REWARD = LanguageModel(LlamaForSequenceClassification, LlamaConfig, PADDED | {"num_labels": 1}, "_reward")

ALL = [
    bert(BertModel), BERT, bert(BertForTokenClassification, num_labels=5, classifier_dropout=0.3), bert(BertForMaskedLM, hidden_act="gelu_new"),
    roberta(RobertaModel), roberta(RobertaForSequenceClassification, num_labels=3), roberta(RobertaForTokenClassification),
    roberta(RobertaForMaskedLM),
    LanguageModel(DistilBertModel, DistilBertConfig, DISTILLED),
    LanguageModel(DistilBertForSequenceClassification, DistilBertConfig, DISTILLED | {"num_labels": 4},
                  dropout=("dropout", "attention_dropout", "seq_classif_dropout")),
    LanguageModel(DistilBertForTokenClassification, DistilBertConfig, DISTILLED | {"num_labels": 4}, dropout=("dropout", "attention_dropout")),
    LanguageModel(DistilBertForMaskedLM, DistilBertConfig, DISTILLED, dropout=("dropout", "attention_dropout")),
    decoder(GPT2Model, GPT2Config, GPT2 | {"n_inner": 40, "activation_function": "relu"}), GPT,
    decoder(GPT2LMHeadModel, GPT2Config, GPT2 | {"tie_word_embeddings": False}, "_untied"),
    decoder(LlamaForCausalLM, LlamaConfig, LLAMA), LLAMA_3,
    decoder(LlamaForCausalLM, LlamaConfig, LLAMA | rope(rope_type="linear", factor=4.0) | {
        "attention_bias": True, "mlp_bias": True, "head_dim": 16, "tie_word_embeddings": True}, "_linear_biased"),
    QWEN,
    decoder(Qwen2ForCausalLM, Qwen2Config, LLAMA | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}, "_windows"),
    decoder(MistralForCausalLM, MistralConfig, LLAMA | {"sliding_window": 5}),
    QWEN_3,
    decoder(Qwen3ForCausalLM, Qwen3Config, LLAMA | {"head_dim": 8, "attention_bias": True, "use_sliding_window": True, "sliding_window": 4,
                                                    "max_window_layers": 1}, "_biased_windows"),
    decoder(LlamaForCausalLM, LlamaConfig, LLAMA | rope(rope_type="yarn", factor=2.5, original_max_position_embeddings=24, beta_fast=8.0, beta_slow=0.5,
                                                        mscale=0.7, mscale_all_dim=0.3, truncate=False), "_yarn"),
    REWARD, LanguageModel(LlamaForSequenceClassification, LlamaConfig, PADDED),
    LanguageModel(Qwen2ForSequenceClassification, Qwen2Config, PADDED | {"num_labels": 3}),
    LanguageModel(Qwen3ForSequenceClassification, Qwen3Config, PADDED | {"head_dim": 8}),
    LanguageModel(MistralForSequenceClassification, MistralConfig, PADDED | {"sliding_window": 5}),
]
TRAINED = [BERT, ALL[5], ALL[9], GPT, LLAMA_3, QWEN, QWEN_3]
