#include <nlohmann/json.hpp>

#include "runner/interop/python/data.h"
#include "runner/interop/python/expression.h"

// Texts, as tokens.

namespace trainrun::python {
namespace {

using nlohmann::json;

constexpr const char* kTextBlocks = R"(class TextBlocks(Dataset):
    """Stretches of tokens one after the other, each with the tokens that come next."""

    def __init__(self, tokens):
        self.tokens = tokens

    def __len__(self):
        return (len(self.tokens) - 1) // BLOCK_SIZE

    def __getitem__(self, index):
        start = index * BLOCK_SIZE
        end = start + BLOCK_SIZE
        return {"input_ids": self.tokens[start:end], "labels": self.tokens[start + 1 : end + 1]}
)";

constexpr const char* kRandomBlocks = R"(class RandomTextBlocks(TextBlocks):
    """Stretches that begin anywhere."""

    def __len__(self):
        return NUM_SAMPLES

    def __getitem__(self, index):
        start = torch.randint(len(self.tokens) - BLOCK_SIZE, ()).item()
        end = start + BLOCK_SIZE
        return {"input_ids": self.tokens[start:end], "labels": self.tokens[start + 1 : end + 1]}
)";

std::string blocks_of(const DataSource& source, const Component<DatasetKind>& set) {
  const DatasetInfo info = set.build({static_cast<uint64_t>(source.recipe.seed)})->info();
  if (set.attributes.at("sampling") != "random") return "TextBlocks";
  const json& samples = set.attributes.at("num_samples");
  source.file.constant("NUM_SAMPLES", samples.is_null() ? "0" : samples.dump(), "of an epoch");
  if (samples.is_null()) source.refuse("random blocks need num_samples");
  source.file.define("RandomTextBlocks", kRandomBlocks);
  return "RandomTextBlocks";
}

/// The place in the text where its part for validation begins.
std::string end_of_training(const DataSource& source) {
  if (source.train.type == "TinyShakespeare") return "1003854";
  const json& fraction = source.train.attributes.at("val_fraction");
  return "int(len(text) * (1 - " + literal(fraction) + "))";
}

constexpr const char* kSentencePairs = R"(class SentencePairs(Dataset):
    """Rows of the published file: two sentences, and 1 where one paraphrases the other."""

    def __init__(self, path):
        table = pd.read_csv(path, sep="\t", quoting=csv.QUOTE_NONE, encoding="utf-8-sig", dtype=str, keep_default_na=False)
        self.rows = list(zip(table["#1 String"], table["#2 String"], table["Quality"].astype(int), strict=True))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]
)";

}  // namespace

Data mrpc_data(const DataSource& source) {
  for (const auto* set : {&source.train, source.eval}) {
    if (set) source.allow(*set, {"root", "split", "tokenizer", "max_length", "padding", "cache"});
  }
  SourceFile& file = source.file;
  file.import("import csv");
  file.import("import pandas as pd");
  file.import("from torch.utils.data import Dataset");
  file.import("from transformers import AutoTokenizer");
  file.constant("DATA_FOLDER", literal(source.train.attributes.at("root")));
  file.constant("TOKENIZER", literal(source.train.attributes.at("tokenizer")));
  file.constant("MAX_LENGTH", source.train.attributes.at("max_length").dump());
  file.define("SentencePairs", kSentencePairs);
  const bool fills = source.train.attributes.at("padding") == "max_length";
  file.define(
      "collate_with",
      "def collate_with(tokenizer):\n"
      "    \"\"\"Makes a batch of rows: pairs as tokens, filled up to the longest of them.\"\"\"\n\n"
      "    def collate(rows):\n"
      "        first, second, labels = zip(*rows, strict=True)\n"
      "        options = {\"truncation\": True, \"max_length\": MAX_LENGTH, \"padding\": " +
          std::string(fills ? "\"max_length\"" : "True") +
          "}\n"
          "        tokens = tokenizer(list(first), list(second), return_tensors=\"pt\", return_token_type_ids=True, "
          "**options)\n"
          "        return dict(tokens) | {\"labels\": torch.tensor(labels)}\n\n"
          "    return collate\n");
  Data data;
  data.is_tensors = false;
  data.loader_arguments = ", collate_fn=collate";
  data.statements = {"collate = collate_with(AutoTokenizer.from_pretrained(TOKENIZER))"};
  const auto path = [](const Component<DatasetKind>& set) {
    return "SentencePairs(f\"{DATA_FOLDER}/msr_paraphrase_" + set.attributes.at("split").get<std::string>() + ".txt\")";
  };
  data.statements.push_back("train_data = " + path(source.train));
  if (source.eval) data.statements.push_back("eval_data = " + path(*source.eval));
  return data;
}

Data language_data(const DataSource& source) {
  const auto& attributes = source.train.attributes;
  for (const auto* set : {&source.train, source.eval}) {
    if (set)
      source.allow(*set, {"root", "path", "split", "val_fraction", "tokenizer", "block_size", "sampling", "num_samples",
                          "download", "mirrors", "cache"});
  }
  const bool is_shakespeare = source.train.type == "TinyShakespeare";
  if (!is_shakespeare && !attributes.at("path").is_string())
    source.refuse("a text in several files is not written; join them");
  const std::string path = is_shakespeare ? attributes.at("root").get<std::string>() + "/input.txt"
                                          : attributes.at("path").get<std::string>();
  SourceFile& file = source.file;
  file.import("from pathlib import Path");
  file.import("from torch.utils.data import Dataset");
  file.constant("TEXT", quoted(path));
  file.constant("BLOCK_SIZE", attributes.at("block_size").dump());
  const std::string tokenizer = attributes.at("tokenizer").get<std::string>();
  std::string text = "def load_tokens():\n    \"\"\"The tokens of the text, for training and for evaluation.\"\"\"\n";
  text += "    text = Path(TEXT).read_text(encoding=\"utf-8\")\n";
  const bool is_split = !attributes.at("split").is_null();
  text += is_split ? "    end = " + end_of_training(source) + "\n    train, evaluation = text[:end], text[end:]\n"
                   : "    train = text\n";
  const std::string result = is_split ? "encode(train), encode(evaluation)" : "encode(train)";
  if (tokenizer == "characters") {
    text +=
        "    numbers = {character: number for number, character in enumerate(sorted(set(train)))}\n\n"
        "    def encode(part):\n"
        "        return torch.tensor([numbers[character] for character in part])\n\n";
  } else {
    file.import("from transformers import AutoTokenizer");
    file.constant("TOKENIZER", quoted(tokenizer));
    text +=
        "    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)\n\n"
        "    def encode(part):\n"
        "        return torch.tensor(tokenizer.encode(part, add_special_tokens=False))\n\n";
  }
  file.define("load_tokens", text + "    return " + result + "\n");
  file.define("TextBlocks", kTextBlocks);
  Data data;
  data.is_tensors = false;
  data.statements = {std::string(is_split ? "train_tokens, eval_tokens" : "train_tokens") + " = load_tokens()",
                     "train_data = " + blocks_of(source, source.train) + "(train_tokens)"};
  if (source.eval)
    data.statements.push_back("eval_data = " + blocks_of(source, *source.eval) +
                              (is_split ? "(eval_tokens)" : "(train_tokens)"));
  return data;
}

}  // namespace trainrun::python
