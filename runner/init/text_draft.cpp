#include "runner/init/text_draft.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "registry/data/data_file.h"
#include "registry/data/text_corpus.h"
#include "registry/formats/text/bpe_trainer.h"
#include "registry/formats/text/unicode.h"
#include "registry/formats/web/hub_cache.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "registry/tensors/files/pretrained_folder.h"
#include "registry/text_data/conversations.h"
#include "registry/text_data/text_table.h"
#include "runner/base/text.h"
#include "runner/init/file_encoding.h"
#include "runner/init/table_columns_plan.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

std::string beginning(const std::string& subject, const std::string& name) {
  return heading(subject) + "version: 1\nname: " + recipe_word(name) + "\nseed: 1\n\n";
}

/// A tokenizer that learns from `texts`: where it is written, and how many tokens it has.
struct LearntTokenizer {
  std::string folder;
  int64_t tokens = 0;
};
LearntTokenizer learn_tokenizer(const std::vector<std::string>& texts, int64_t most, const InitOptions& options,
                                Draft& draft) {
  WordCounter counter;
  counter.add(texts);
  BpeTrainerOptions wanted;
  wanted.vocab_size = most;
  wanted.special_tokens = {"<pad>"};
  const TrainedBpe bpe = train_bpe(counter.finish(), wanted);
  const std::string folder = (fs::path(options.output).parent_path() / (options.name + "_tokenizer")).string();
  draft.files[folder + "/tokenizer.json"] = tokenizer_json(bpe);
  draft.files[folder + "/tokenizer_config.json"] = "{\"pad_token\": \"<pad>\"}\n";
  return {folder, static_cast<int64_t>(bpe.tokens.size())};
}

std::set<char32_t> characters_in(const std::vector<std::string>& texts) {
  std::set<char32_t> found;
  for (const std::string& text : texts) {
    for (size_t at = 0; at < text.size();) found.insert(unicode::next(text, at));
  }
  return found;
}

/// How many tabs each of the first lines has; 0 where they do not have the same number.
int64_t tabs_of_lines(const std::string& text) {
  constexpr size_t kLines = 100;
  std::set<int64_t> counts;
  size_t begin = 0;
  for (size_t line = 0; line < kLines && begin < text.size() && counts.size() < 2; ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view words = std::string_view(text).substr(begin, end - begin);
    if (!words.empty()) counts.insert(std::ranges::count(words, '\t'));
    begin = end + 1;
  }
  return counts.size() == 1 ? *counts.begin() : 0;
}

int64_t size_of(const std::vector<std::string>& texts) {
  int64_t size = 0;
  for (const std::string& text : texts) size += static_cast<int64_t>(unicode::count(text));
  return size;
}

/// What a language model learns from.
struct Corpus {
  std::vector<std::string> paths;
  std::string encoding;   // "": UTF-8
  std::string tokenizer;  // "": characters
  int64_t vocabulary = 0;
  int64_t tokens = 0;  // of the training part, about
};

/// Texts, read whole.
struct ReadTexts {
  std::vector<std::string> training, other;  // all but the last tenth, and that
  std::string encoding;                      // as a recipe has to name it, or ""
};
ReadTexts read_texts(TextFiles files, const InitOptions& options) {
  return look_in_encoding(files.paths, options.encoding, [&](const std::optional<TextEncoding>& encoding) {
    files.encoding = encoding;
    ReadTexts texts{read_documents(files, TextPart{false}), read_documents(files, TextPart{true}), ""};
    if (encoding && *encoding != TextEncoding::kUtf8) texts.encoding = word_of(*encoding);
    return texts;
  });
}

std::string language_model_recipe(const Corpus& corpus, const std::string& name, int64_t batch_size) {
  constexpr int64_t kBlock = 128, kEvery = 250;
  constexpr int64_t kMostSteps = 2000, kLeastSteps = 250;
  const int64_t per_epoch = std::max<int64_t>(1, corpus.tokens / (kBlock * batch_size));
  const int64_t steps = std::clamp((10 * per_epoch + kEvery - 1) / kEvery * kEvery, kLeastSteps, kMostSteps);
  std::string text =
      beginning("Learns to write like " + corpus.paths[0] + (corpus.paths.size() > 1 ? " and the other texts" : "") +
                    ", " + (corpus.tokenizer.empty() ? "character by character" : "token by token"),
                name);
  text += commented("model:", "a small decoder of Llama's kind") +
          "  layers:\n    - {type: LlamaForCausalLM, vocab_size: " + std::to_string(corpus.vocabulary) +
          ", hidden_size: 128, intermediate_size: 344, num_hidden_layers: 4, num_attention_heads: 4,\n       "
          "max_position_embeddings: " +
          std::to_string(kBlock) + ", tie_word_embeddings: false}\n";
  text += "loss: CausalLMLoss\nmetrics: [{type: Perplexity, class_dim: -1}, {type: Accuracy, class_dim: -1}]\n\n";
  std::string data =
      "type: TextLM, path: " + (corpus.paths.size() == 1 ? recipe_word(corpus.paths[0]) : recipe_list(corpus.paths));
  if (!corpus.encoding.empty()) data += ", encoding: " + corpus.encoding;
  if (!corpus.tokenizer.empty()) data += ", tokenizer: " + recipe_word(corpus.tokenizer);
  data += ", block_size: " + std::to_string(kBlock);
  text += "dataset:\n";
  text += commented("  train: {" + data +
                        ", split: train, sampling: random, num_samples: " + std::to_string(steps * batch_size) + "}",
                    "all but the last tenth");
  const int64_t eval_blocks = corpus.tokens / 9 / kBlock;
  constexpr int64_t kMostBlocks = 1000;
  text += commented("  eval: {" + data + ", split: val" +
                        (eval_blocks > kMostBlocks ? ", subset: " + std::to_string(kMostBlocks) : "") + "}",
                    eval_blocks > kMostBlocks ? "of the last tenth, the first blocks" : "the last tenth");
  text += "dataloader: {batch_size: " + std::to_string(batch_size) +
          ", eval_batch_size: " + std::to_string(batch_size) + "}\n\n";
  text += "optimizer:\n  type: ChainedOptimizer\n  optimizers:\n" +
          commented("    - {match: 'layers\\..*_proj\\.weight$', optimizer: {type: Muon, lr: 0.02}}",
                    "matrices learn faster so") +
          "    - {optimizer: {type: AdamW, lr: 2.0e-3, betas: [0.9, 0.99], weight_decay: 0}}\n";
  text += "scheduler: CosineAnnealingLR\ntraining: {max_steps: " + std::to_string(steps) +
          ", max_grad_norm: 1.0}\nevaluation: {every: " + std::to_string(kEvery) + "}\n";
  return text + "callbacks:\n" +
         commented("  - {type: EarlyStopping, monitor: eval/loss, patience: 3, restore_best: true}",
                   "ends with the best weights");
}

/// What a text model of a table reads and learns.
struct TextPlan {
  std::vector<std::string> columns;
  std::string tokenizer;
  int64_t vocabulary = 0;  // of a tokenizer that was made
  std::optional<PretrainedFolder> weights;
  TableFiles files;
  bool is_split = false, stratifies = false;
  int64_t rows = 0;  // to learn from
  int64_t length = 128;
};

std::string layer_of(const std::string& type, const std::string& ending) {
  if (type == "bert") return "Bert" + ending;
  if (type == "distilbert") return "DistilBert" + ending;
  if (type == "roberta") return "Roberta" + ending;
  if (type == "llama") return "Llama" + ending;
  if (type == "mistral") return "Mistral" + ending;
  if (type == "qwen2") return "Qwen2" + ending;
  return type == "qwen3" ? "Qwen3" + ending : "";
}

std::string text_recipe(const TableSight& table, const TableTarget& target, const TextPlan& plan,
                        const std::string& name, int64_t batch_size) {
  const int64_t outputs = target.is_class ? target.num_classes : 1;
  std::string text = beginning(
      "Predicts " + target.name + " from the texts of " + table.path + ", " + grouped(table.rows) + " rows", name);
  if (plan.weights) {
    text += "model:\n  layers: [{type: " + layer_of(plan.weights->type, "ForSequenceClassification") +
            ", pretrained: " + recipe_word(plan.weights->source) + ", num_labels: " + std::to_string(outputs) + "}]\n";
  } else {
    text += "model:\n  layers:\n" +
            commented("    - {type: Embedding, inputs: input_ids, num_embeddings: " + std::to_string(plan.vocabulary) +
                          ", embedding_dim: 128, name: words}",
                      "a vector for each token,") +
            commented("    - {type: TokenPooling, inputs: [words, attention_mask]}", "and the mean of a text's") +
            "    - {type: Dropout, p: 0.3}\n    - {type: Linear, out_features: " + std::to_string(outputs) + "}\n";
  }
  text += target.is_class ? "loss: CrossEntropyLoss\n" + metrics_text(is_unbalanced(target.counts))
                          : "loss: MSELoss\nmetrics: [MAE, R2]\n";
  std::string data = "type: TextClassification, path: " + recipe_word(plan.files.train) +
                     ", text_columns: " + recipe_list(plan.columns) + ", label: " + recipe_word(target.name) +
                     ",\n    tokenizer: " + recipe_word(plan.tokenizer) +
                     ", max_length: " + std::to_string(plan.length);
  if (table.encoding) data += ", encoding: " + word_of(*table.encoding);
  if (!target.is_class) data += ", task: regression";
  if (target.without > 0) data += ", broken: skip";
  const std::string stratify = plan.stratifies ? ", stratify: true" : "";
  text += "\ndataset:\n";
  if (plan.is_split) {
    text += "  train: {type: Split, part: train" + stratify + ", dataset: &texts {" + data + "}}\n";
    text += "  eval: {type: Split, part: validation" + stratify + ", dataset: *texts}\n";
  } else {
    text += "  train: &texts {" + data + "}\n  eval: {<<: *texts, path: " + recipe_word(plan.files.eval) + "}\n";
  }
  const Length length =
      plan.weights ? length_for(plan.rows, batch_size, 700, 3, 10) : length_for(plan.rows, batch_size, 2000, 5, 40);
  text += "dataloader: {batch_size: " + std::to_string(batch_size) + ", eval_batch_size: 64}\n\n";
  text += plan.weights ? commented("optimizer: {type: AdamW, lr: 5.0e-5}", "low, so that what the weights know is kept")
                       : "optimizer: {type: AdamW, lr: 5.0e-3, weight_decay: 0.05}\n";
  text += "scheduler: {type: LinearWithWarmup, warmup_ratio: 0.1}\ntraining: {num_epochs: " +
          std::to_string(length.epochs) + "}\n";
  const std::string monitor = !target.is_class || is_unbalanced(target.counts) ? "eval/loss" : "eval/accuracy";
  return text + "callbacks:\n" +
         commented("  - {type: EarlyStopping, monitor: " + monitor + ", patience: " + std::to_string(length.patience) +
                       ", restore_best: true}",
                   "ends with the best weights");
}

std::vector<std::string> text_columns(const TableSight& table, const TableTarget& target, const InitOptions& options) {
  std::vector<std::string> columns = options.texts;
  if (columns.empty()) columns = plan_columns(table, target).texts;
  for (const std::string& column : columns) {
    if (!table.find(column))
      throw Error(table.path + ": there is no column '" + column + "'" + suggestion(column, table.names()));
    if (column == target.name)
      throw Error(table.path + ": '" + column +
                  "' is predicted, and cannot be read as well; write --target and another column");
  }
  if (columns.size() > 2)
    throw Error(table.path +
                ": a text model reads one column of texts or two; write --text and one of these: " + join(columns));
  return columns;
}

}  // namespace

Draft draft_language_model(const std::vector<std::string>& paths, const InitOptions& options) {
  constexpr int64_t kMostCharacters = 5'000'000, kVocabulary = 8000, kLittle = 50'000;
  constexpr size_t kMostDifferent = 300;
  Draft draft;
  Corpus corpus;
  corpus.paths = paths;
  TextFiles files;
  files.paths = paths;
  const auto [training, other, encoding] = read_texts(files, options);
  corpus.encoding = encoding;
  const std::set<char32_t> known = characters_in(training);
  const std::set<char32_t> found = characters_in(other);
  const int64_t size = size_of(training);
  if (size == 0) throw DataError(paths[0] + ": there is no text to learn from");
  const bool has_new = !std::ranges::includes(known, found);
  draft.seen.push_back(corpus_name(files) + ": " + grouped(size + size_of(other)) + " characters, " +
                       std::to_string(known.size()) + " different ones");
  if (!encoding.empty()) draft.seen.push_back("encoding: " + encoding);
  if (size <= kMostCharacters && known.size() <= kMostDifferent && !has_new) {
    corpus.vocabulary = static_cast<int64_t>(known.size());
    corpus.tokens = size;
    draft.seen.emplace_back("read character by character");
  } else {
    const LearntTokenizer tokenizer = learn_tokenizer(training, kVocabulary, options, draft);
    corpus.tokenizer = tokenizer.folder;
    corpus.vocabulary = tokenizer.tokens;
    constexpr int64_t kCharactersOfToken = 4;
    corpus.tokens = size / kCharactersOfToken;
    draft.seen.push_back(
        "read by a tokenizer that was made of it, " + grouped(tokenizer.tokens) + " tokens (" +
        (has_new ? "its last tenth has characters that the rest has not" : "too large for single characters") + ")");
  }
  draft.seen.emplace_back("split: the last tenth to evaluate");
  if (size < kLittle)
    draft.doubts.push_back("a text of " + grouped(size) +
                           " characters is little to learn a language from: the model will repeat it");
  if (options.weights) draft.doubts.emplace_back("--weights is not used: the model is learnt from nothing");
  if (const int64_t tabs = tabs_of_lines(training[0]); tabs > 0) {
    draft.doubts.push_back("each line of " + paths[0] + " has " + counted(tabs, "tab", "tabs") +
                           ", as those of a table do: called " + fs::path(paths[0]).stem().string() +
                           ".tsv, it is read as one");
  }
  draft.batch_size = 32;
  draft.recipe = [corpus, name = options.name](int64_t batch_size) {
    return language_model_recipe(corpus, name, batch_size);
  };
  return draft;
}

bool reads_as_texts(const TableSight& table, const TableTarget& target) {
  const ColumnPlan plan = plan_columns(table, target);
  return plan.features.empty() && !plan.texts.empty() && table.type != "SQLite";
}

Draft draft_texts(const TableSight& table, const TableTarget& target, const TableFiles& files,
                  const InitOptions& options) {
  constexpr int64_t kVocabulary = 8000, kEnough = 5;
  if (table.type == "SQLite" || (!table.settings.empty() && !has_extension(table.path, ".tsv"))) {
    throw Error(
        table.path +
        ": texts with labels are read from .csv files with commas, .tsv, .jsonl and .parquet files; convert it");
  }
  Draft draft;
  TextPlan plan;
  plan.files = files;
  plan.columns = text_columns(table, target, options);
  plan.is_split = files.eval.empty();
  const int64_t usable = table.rows - target.without;
  plan.rows = plan.is_split ? usable * 4 / 5 : usable;
  int64_t rarest = target.counts.empty() ? 0 : usable;
  for (const auto& [name, count] : target.counts) rarest = std::min(rarest, count);
  plan.stratifies = rarest >= kEnough;
  TextTableOptions read;
  read.path = files.train;
  read.text_columns = plan.columns;
  read.is_chosen = false;
  read.encoding = table.encoding;
  TextRows rows = read_text_table(read);
  std::vector<std::string> texts = std::move(rows.first);
  texts.insert(texts.end(), rows.second.begin(), rows.second.end());
  double words = 0;
  for (const std::string& name : plan.columns) words += table.find(name)->mean_words();
  plan.length = power_of_two(3 * words, 64, 256);
  plan.weights = options.weights ? std::optional(look_at_weights(*options.weights)) : find_text_model();
  draft.seen.push_back(table.path + ": " + grouped(table.rows) + " rows; texts in " + join(plan.columns) + ", " +
                       in_figures(words, 3) + " words on average");
  draft.seen.push_back(
      "predicted: " + target.name + " (" + target.reason + ")" +
      (target.is_class ? ", " + std::to_string(target.counts.size()) + " classes: " + counts_text(target.counts) : ""));
  if (plan.weights) {
    plan.tokenizer = plan.weights->source;
    if (layer_of(plan.weights->type, "").empty())
      throw Error(plan.weights->source + ": is a model of the type '" + plan.weights->type +
                  "', which trainrun cannot train");
    draft.seen.push_back("pretrained: " + plan.weights->source + " (" + plan.weights->type + ")");
  } else {
    const LearntTokenizer tokenizer = learn_tokenizer(texts, kVocabulary, options, draft);
    plan.tokenizer = tokenizer.folder;
    plan.vocabulary = tokenizer.tokens;
    draft.seen.push_back(
        "pretrained: none found; the mean of the tokens' vectors is learnt from nothing, with a tokenizer of " +
        grouped(tokenizer.tokens) + " tokens made of these texts");
    draft.doubts.emplace_back(
        "a pretrained model, such as distilbert-base-uncased, understands texts far better: --weights FOLDER");
    if (plan.columns.size() == 2)
      draft.doubts.emplace_back(
          "a mean of vectors cannot compare the two texts of a pair; that takes a pretrained model");
  }
  draft.seen.push_back(plan.is_split ? "split: 80 % of the rows to train, the others to evaluate, drawn at random" +
                                           std::string(plan.stratifies ? ", each class in its share" : "")
                                     : "split: evaluated on " + files.eval);
  if (!target.doubt.empty()) draft.doubts.push_back(target.doubt);
  if (target.without > 0)
    draft.doubts.push_back(counted(target.without, "row has", "rows have") + " no " + target.name +
                           ", and are left out (broken: skip)");
  std::vector<std::string> others = plan_columns(table, target).features;
  std::erase_if(others,
                [&](const std::string& name) { return std::ranges::find(plan.columns, name) != plan.columns.end(); });
  if (!others.empty()) draft.doubts.push_back("other columns are not read: " + join_first(others, 8, LeftOut::kCount));
  if (table.copies > 0)
    draft.doubts.push_back(counted(table.copies, "row is", "rows are") +
                           " like one before: where both sets have them, the figures are too good");
  draft.batch_size = plan.weights ? 16 : power_of_two(static_cast<double>(plan.rows) / 40, 16, 64);
  draft.recipe = [=, name = options.name](int64_t batch_size) {
    return text_recipe(table, target, plan, name, batch_size);
  };
  return draft;
}

Draft draft_chats(const std::string& path, const InitOptions& options) {
  int64_t count = 0, turns = 0, characters = 0;
  for_each_conversation(path, std::nullopt, [&](const Conversation& chat) {
    ++count;
    turns += static_cast<int64_t>(chat.messages.size());
    characters += static_cast<int64_t>(chat.messages.dump().size());
  });
  if (!options.weights) {
    throw Error(
        path + ": " + grouped(count) +
        " conversations; a model that learns to answer begins with pretrained weights: write --weights and a folder "
        "in Hugging Face's layout, with config.json, weights, tokenizer and chat template");
  }
  const PretrainedFolder weights = look_at_weights(*options.weights);
  const std::string layer = layer_of(weights.type, "ForCausalLM");
  if (layer.empty() || weights.type.find("bert") != std::string::npos) {
    throw Error(weights.source + ": is a model of the type '" + weights.type +
                "'; conversations are learnt by llama, mistral, qwen2 and qwen3");
  }
  constexpr int64_t kCharactersOfToken = 3;
  const int64_t length = power_of_two(
      2.0 * static_cast<double>(characters) / static_cast<double>(kCharactersOfToken * std::max<int64_t>(count, 1)),
      128, 2048);
  Draft draft;
  draft.seen.push_back(path + ": " + grouped(count) + " conversations, " +
                       in_figures(static_cast<double>(turns) / static_cast<double>(std::max<int64_t>(count, 1)), 3) +
                       " messages each");
  draft.seen.push_back("pretrained: " + weights.source + " (" + weights.type + "), trained by LoRA adapters");
  draft.seen.emplace_back("split: 90 % of the conversations to train, the others to evaluate");
  draft.batch_size = 4;
  draft.recipe = [=, name = options.name](int64_t batch_size) {
    std::string text =
        beginning("Learns to answer as in the conversations of " + path + ", " + grouped(count) + " of them", name);
    text += "model:\n  layers: [{type: " + layer + ", pretrained: " + recipe_word(weights.source) + "}]\n";
    text +=
        commented("  adapters: {type: LoRA, r: 16, target: ['[qv]_proj$']}", "the pretrained weights stay as they are");
    text += "loss: CausalLMLoss\nmetrics: [{type: Perplexity, class_dim: -1}]\n\ndataset:\n";
    const std::string split = "fractions: [0.9, 0.1], ";
    text += "  train: {type: Split, " + split + "part: train, dataset: &chats {type: Chat, path: " + recipe_word(path) +
            ", tokenizer: " + recipe_word(weights.source) + ", max_length: " + std::to_string(length) + "}}\n";
    text += "  eval: {type: Split, " + split + "part: validation, dataset: *chats}\n";
    text += "dataloader: {batch_size: " + std::to_string(batch_size) +
            ", eval_batch_size: " + std::to_string(batch_size) + ", group_by_length: true}\n\n";
    return text +
           "optimizer: {type: AdamW, lr: 2.0e-4}\nscheduler: {type: LinearWithWarmup, warmup_ratio: 0.05}\ntraining: "
           "{num_epochs: 3, max_grad_norm: 1.0}\n";
  };
  return draft;
}

PretrainedFolder look_at_weights(const std::string& folder) {
  std::ifstream file(fs::path(folder) / "config.json");
  const nlohmann::json config = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object() || !config.contains("model_type") || !config["model_type"].is_string()) {
    throw Error(
        folder +
        ": is not a folder of a pretrained model in Hugging Face's layout: it has no config.json with a model_type");
  }
  check_pretrained_folder(folder);
  return {folder, config["model_type"].get<std::string>()};
}

std::optional<PretrainedFolder> find_text_model() {
  std::error_code unreadable;
  std::vector<fs::path> snapshots;
  for (const fs::directory_entry& model : fs::directory_iterator(hub_cache_folder(), unreadable)) {
    for (const fs::directory_entry& snapshot : fs::directory_iterator(model.path() / "snapshots", unreadable))
      snapshots.push_back(snapshot.path());
  }
  std::sort(snapshots.begin(), snapshots.end());
  for (const fs::path& snapshot : snapshots) {
    try {
      PretrainedFolder found = look_at_weights(snapshot.string());
      const bool has_tokenizer = fs::exists(snapshot / "tokenizer.json") || fs::exists(snapshot / "vocab.txt");
      if (has_tokenizer && found.type.find("bert") != std::string::npos && !layer_of(found.type, "").empty())
        return found;
    } catch (const Error&) {  // not a whole model
      continue;
    }
  }
  return std::nullopt;
}

}  // namespace trainrun
