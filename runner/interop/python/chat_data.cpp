#include <nlohmann/json.hpp>

#include "registry/formats/text/chat_template.h"
#include "runner/interop/python/data.h"
#include "runner/interop/python/expression.h"

// Conversations, of which the answers are learnt.

namespace trainrun::python {
namespace {

constexpr const char* kChats = R"(class Chats(Dataset):
    """Conversations in JSON lines, as tokens and the tokens that come next; -100 is where none is to be learnt."""

    def __init__(self, path, tokenizer):
        chats = []
        with open(path, encoding="utf-8") as file:
            for line in file:
                if not line.strip():
                    continue
                messages = json.loads(line)["messages"]
TOKENS                if any(label != -100 for label in labels):
                    chats.append((ids, labels))
        self.samples = SAMPLES

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]
)";

constexpr const char* kAnswers =
    R"(                encoded = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
                ids, learnt = encoded["input_ids"][:MAX_LENGTH], encoded["assistant_masks"][:MAX_LENGTH]
                labels = [token if counts else -100 for token, counts in zip(ids[1:], learnt[1:], strict=True)] + [-100]
)";

constexpr const char* kAllTokens =
    R"(                ids = tokenizer.apply_chat_template(messages, return_dict=False)[:MAX_LENGTH]
                labels = ids[1:] + [-100]
)";

constexpr const char* kPacked = R"(def packed(lengths):
    """Which conversations lie together in MAX_LENGTH tokens: the longest first, each where the least room is left."""
    blocks, rooms = [], []
    for count, chat in enumerate(sorted(range(len(lengths)), key=lambda chat: -lengths[chat])):
        best = bisect.bisect_left(rooms, (lengths[chat],))
        room, _, block = rooms.pop(best) if best < len(rooms) else (MAX_LENGTH, 0, len(blocks))
        if block == len(blocks):
            blocks.append([])
        blocks[block].append(chat)
        bisect.insort(rooms, (room - lengths[chat], count, block))
    return blocks
)";

constexpr const char* kCollatePacked = R"(def collate_with(tokenizer):
    """Makes a batch of samples. Tokens see those before them in their own conversation, in which positions begin at 0."""

    def collate(samples):
        def rows(values, filling):
            return pad_sequence([torch.cat(values(sample)) for sample in samples], batch_first=True, padding_value=filling)

        own = rows(lambda chats: [torch.full((len(ids),), number) for number, (ids, _) in enumerate(chats, 1)], 0)
        return {
            "input_ids": rows(lambda chats: [torch.tensor(ids) for ids, _ in chats], tokenizer.pad_token_id or 0),
            "attention_mask": (own.unsqueeze(2) == own.unsqueeze(1)).tril().unsqueeze(1),
            "position_ids": rows(lambda chats: [torch.arange(len(ids)) for ids, _ in chats], 0),
            "labels": rows(lambda chats: [torch.tensor(labels) for _, labels in chats], -100),
        }

    return collate
)";

constexpr const char* kCollateChats = R"(def collate_with(tokenizer):
    """Makes a batch of conversations, filled up to the longest."""

    def collate(samples):
        def rows(values, filling):
            return pad_sequence([torch.tensor(row) for row in values], batch_first=True, padding_value=filling)

        ids, labels = zip(*samples, strict=True)
        return {
            "input_ids": rows(ids, tokenizer.pad_token_id or 0),
            "attention_mask": rows([[1] * len(row) for row in ids], 0),
            "labels": rows(labels, -100),
        }

    return collate
)";

constexpr const char* kPreferencePairs = R"(class PreferencePairs(Dataset):
    """Prompts in JSON lines with a chosen and a rejected answer, as tokens: how many are the prompt's, and all of both."""

    def __init__(self, path, tokenizer):
        self.rows = []
        end = tokenizer.eos_token or ""
        with open(path, encoding="utf-8") as file:
            for line in file:
                if not line.strip():
                    continue
                row = json.loads(line)
                texts = [row["prompt"] + row[key] for key in ("chosen", "rejected")]
                prompt, *wholes = (tokenizer(text).input_ids for text in (row["prompt"], *(text.removesuffix(end) + end for text in texts)))
                begin = len(os.path.commonprefix([prompt, *wholes]))
                self.rows.append([(begin, whole[:MAX_LENGTH]) for whole in wholes])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]
)";

constexpr const char* kCollatePairs = R"(def collate_with(tokenizer):
    """Makes a batch of pairs, in which all answers are filled up to the longest."""
    filling = tokenizer.pad_token_id or 0

    def collate(rows):
        longest = max(len(ids) for row in rows for _, ids in row)
        batch = {}
        for key, answers in zip(("chosen", "rejected"), zip(*rows, strict=True), strict=True):
            texts = [(begin, ids, longest - len(ids)) for begin, ids in answers]
            batch[f"{key}_input_ids"] = torch.tensor([ids + [filling] * rest for _, ids, rest in texts])
            batch[f"{key}_attention_mask"] = torch.tensor([[1] * len(ids) + [0] * rest for _, ids, rest in texts])
            batch[f"{key}_labels"] = torch.tensor([[-100] * (begin - 1) + ids[begin:] + [-100] * (rest + 1) for begin, ids, rest in texts])
        return batch

    return collate
)";

/// What is written alike for conversations and for pairs.
Data data_in_lines(const DataSource& source, const std::string& name) {
  SourceFile& file = source.file;
  for (const char* line :
       {"import json", "from torch.utils.data import Dataset", "from transformers import AutoTokenizer"}) {
    file.import(line);
  }
  file.constant("TOKENIZER", literal(source.train.attributes.at("tokenizer")));
  file.constant("MAX_LENGTH", source.train.attributes.at("max_length").dump());
  Data data;
  data.is_tensors = false;
  data.loader_arguments = ", collate_fn=collate";
  data.statements = {"tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)", "collate = collate_with(tokenizer)"};
  const auto set_of = [&](const Component<DatasetKind>& set) {
    return name + "(" + literal(set.attributes.at("path")) + ", tokenizer)";
  };
  data.statements.push_back("train_data = " + set_of(source.train));
  if (source.eval) data.statements.push_back("eval_data = " + set_of(*source.eval));
  return data;
}

/// Refuses files of another kind, and evaluation data that differ from those of training in one of `keys`.
void check_lines(const DataSource& source, const std::vector<const char*>& keys) {
  std::set<std::string> known(keys.begin(), keys.end());
  known.insert({"path", "cache"});
  for (const auto* set : {&source.train, source.eval}) {
    if (!set) continue;
    source.allow(*set, known);
    if (!set->attributes.at("path").get<std::string>().ends_with(".jsonl")) {
      source.file.refuse(set->place, set->path + ".path",
                         set->type + " is written of .jsonl files alone; save the data so");
    }
    for (const char* key : keys) {
      if (set->attributes.at(key) == source.train.attributes.at(key)) continue;
      source.file.refuse(set->place, set->path + "." + key,
                         std::string("training and evaluation data that differ in ") + key + " are not written");
    }
  }
}

/// Refuses what the program would read, or choose, otherwise.
void check_chats(const DataSource& source) {
  check_lines(source, {"tokenizer", "train_on", "max_length", "packing"});
  const auto& attributes = source.train.attributes;
  if (attributes.at("train_on") == "last_answer")
    source.refuse("train_on: last_answer is not written; use answers, or all");
  if (attributes.at("train_on") == "answers" &&
      !open_chat_template(attributes.at("tokenizer").get<std::string>(), std::nullopt).marks_answers()) {
    source.refuse(
        "transformers finds answers by {% generation %} in the chat template, which this one does not have; write it "
        "around what the assistant says");
  }
  source.file.note(source.train.path +
                   ": the program reads objects with `messages`, and learns every answer, also one with weight: 0");
}

}  // namespace

Data chat_data(const DataSource& source) {
  check_chats(source);
  const auto& attributes = source.train.attributes;
  const bool packs = attributes.at("packing").get<bool>();
  SourceFile& file = source.file;
  file.import("from torch.nn.utils.rnn import pad_sequence");
  if (packs) {
    file.import("import bisect");
    file.define("packed", kPacked);
  }
  const std::string text = replaced(kChats, "TOKENS", attributes.at("train_on") == "all" ? kAllTokens : kAnswers);
  file.define(
      "Chats",
      replaced(text, "SAMPLES",
               packs ? "[[chats[i] for i in block] for block in packed([len(ids) for ids, _ in chats])]" : "chats"));
  file.define("collate_with", packs ? kCollatePacked : kCollateChats);
  return data_in_lines(source, "Chats");
}

Data preference_data(const DataSource& source) {
  check_lines(source, {"tokenizer", "max_length"});
  source.file.note(source.train.path +
                   ": the program reads objects with `prompt`, `chosen` and `rejected` that are texts, not messages");
  source.file.import("import os");
  source.file.define("PreferencePairs", kPreferencePairs);
  source.file.define("collate_with", kCollatePairs);
  return data_in_lines(source, "PreferencePairs");
}

}  // namespace trainrun::python
