#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <exception>
#include <map>

#include "registry/catalog.h"
#include "registry/datasets/chat_tokens.h"
#include "registry/datasets/data_details.h"
#include "registry/datasets/token_windows.h"
#include "registry/error.h"
#include "registry/named.h"

// Conversations, of which the answers are learnt.

namespace trainrun {

enum class TooLong { kTruncate, kDrop };
template <>
struct Words<TooLong> {
  static constexpr std::array kWords = {"truncate", "drop"};
};

namespace {

struct Chat {
  std::string path;
  std::string tokenizer;
  std::optional<std::string> chat_template;
  Named<std::variant<bool, int64_t, double, std::string>> template_variables;
  std::optional<std::string> system;
  TrainOn train_on = TrainOn::kAnswers;
  int64_t max_length = 1024;
  TooLong too_long = TooLong::kTruncate;
  bool packing = false;
  static void describe(Fields<Chat>& f) {
    f.required("path", &Chat::path)
        .doc(
            "a .jsonl file, an object in each line, or a .json file, a list of objects, plain or .gz; or a .parquet, "
            ".arrow or .feather file, an object in each row. An object has `messages` as OpenAI writes them, "
            "`conversations` as ShareGPT does, `prompt` and `completion`, or "
            "`instruction`, `input` and `output` as Alpaca does");
    f.required("tokenizer", &Chat::tokenizer)
        .doc("a folder in Hugging Face's layout, or one of a tokenizer's files; its chat template is in its folder");
    f.optional("template", &Chat::chat_template)
        .doc(
            "the chat template: a file, the text of a Jinja template, or the name of one of several that the tokenizer "
            "has; null: the tokenizer's own");
    f.optional("template_variables", &Chat::template_variables)
        .doc(
            "further variables that the template reads, by their names, as in {enable_thinking: false, date_string: 26 "
            "Jul "
            "2024}");
    f.optional("system", &Chat::system).doc("the system message of conversations that have none; null: none");
    f.optional("train_on", &Chat::train_on)
        .doc(
            "the tokens that are learnt: all answers of the assistant, but those with weight: 0; the last one; or all "
            "tokens. The others' labels are -100, which losses pass over");
    f.optional("max_length", &Chat::max_length).at_least(2).unit("tokens").doc("the longest that a sample may be");
    f.optional("too_long", &Chat::too_long)
        .doc("truncate: a longer conversation is cut off at its end; drop: it is left out");
    f.optional("packing", &Chat::packing)
        .doc(
            "put several conversations into one sample, as many as max_length has room for; none sees another, and the "
            "positions of each begin at 0. The model has to read attention_mask and position_ids");
  }
  void check(Checker& checker) const {
    for (const auto& entry : template_variables.entries) {
      for (const char* taken : {"messages", "tools", "documents", "add_generation_prompt"}) {
        if (entry.first == taken) checker.fail("template_variables", "'" + entry.first + "' comes from the data");
      }
    }
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

/// Which samples lie together in a block of so many tokens: best fit, the longest first. Each sample is at most as long.
std::vector<std::vector<int64_t>> packed(const std::vector<int64_t>& lengths, int64_t block) {
  std::vector<int64_t> order(lengths.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  std::vector<std::vector<int64_t>> blocks;
  std::multimap<int64_t, size_t> room;  // of each block
  for (const int64_t sample : order) {
    const int64_t length = lengths[static_cast<size_t>(sample)];
    const auto best = room.lower_bound(length);
    if (best == room.end()) {
      room.emplace(block - length, blocks.size());
      blocks.push_back({sample});
    } else {
      const auto [left, number] = *best;
      blocks[number].push_back(sample);
      room.erase(best);
      room.emplace(left - length, number);
    }
  }
  return blocks;
}

class ChatDataset : public Dataset, public DetailedDataset {
 public:
  explicit ChatDataset(Chat options) : options_(std::move(options)) {}

  DatasetInfo info() const override {
    DatasetInfo info;
    std::vector<const char*> names = {"input_ids", "attention_mask"};
    if (options_.packing) names.push_back("position_ids");
    names.push_back("labels");
    for (const char* name : names) info.fields.push_back({name, {options_.max_length}, at::kLong, std::nullopt});
    info.target = "labels";
    return info;
  }
  void open() override {
    tokenizer_ = open_tokenizer(options_.tokenizer);
    std::vector<Conversation> waiting;
    for_each_conversation(options_.path, options_.system, [&](Conversation chat) {
      constexpr size_t kAtOnce = 512;
      if (!chat.plain) open_template();
      waiting.push_back(std::move(chat));
      if (waiting.size() == kAtOnce) take(waiting);
    });
    take(waiting);
    if (num_read_ == 0) throw DataError(options_.path + ": has no conversations");
    if (places_.empty()) throw DataError(options_.path + ": " + notes()[0]);
    if (options_.packing) {
      std::vector<int64_t> lengths;
      for (size_t i = 0; i < places_.size(); ++i) lengths.push_back(begins_[i + 1] - begins_[i]);
      blocks_ = packed(lengths, options_.max_length);
    }
  }
  int64_t size() const override { return static_cast<int64_t>(options_.packing ? blocks_.size() : places_.size()); }
  Batch get(const at::Tensor& indices) const override;
  std::optional<int64_t> padding(const std::string& field) const override {
    if (field == "labels") return kNoLabel;
    return field == "input_ids" ? tokenizer_->pad_id().value_or(0) : 0;
  }
  std::string place(int64_t index, const std::string& field) const override {
    const int64_t first = chats_of(index).front();
    return places_.at(static_cast<size_t>(first)) + ":" + field;
  }
  std::vector<std::string> notes() const override {
    std::vector<std::string> told;
    const std::string limit = " max_length of " + std::to_string(options_.max_length) + " tokens";
    const std::string of = " of " + std::to_string(num_read_) + " conversations ";
    const auto are = [](int64_t count) { return count == 1 ? "is" : "are"; };
    if (num_empty_ > 0) {
      told.push_back(std::to_string(num_empty_) + of + are(num_empty_) +
                     " left out, since there is no token to learn within the" + limit);
    }
    if (num_dropped_ > 0) {
      told.push_back(std::to_string(num_dropped_) + of + are(num_dropped_) + " left out as longer than the" + limit);
    }
    if (num_cut_ > 0) told.push_back(std::to_string(num_cut_) + of + are(num_cut_) + " cut off at the" + limit);
    return told;
  }

 private:
  void open_template() {
    if (template_) return;
    template_ = std::make_shared<const ChatTemplate>(open_chat_template(
        options_.tokenizer, options_.chat_template,
        ChatVariables(options_.template_variables.entries.begin(), options_.template_variables.entries.end())));
  }

  /// Encodes conversations on all threads, and keeps their tokens.
  void take(std::vector<Conversation>& chats) {
    const ChatEncoder encoder(tokenizer_, template_, options_.train_on);
    std::vector<ChatTokens> encoded(chats.size());
    std::vector<std::exception_ptr> errors(chats.size());
    at::parallel_for(0, static_cast<int64_t>(chats.size()), 8, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        try {
          encoded[i] = encoder.encode(chats[i]);
        } catch (const Error&) {
          errors[i] = std::current_exception();
        }
      }
    });
    for (size_t i = 0; i < chats.size(); ++i) {
      if (errors[i]) std::rethrow_exception(errors[i]);
      keep(chats[i].place, encoded[i]);
    }
    chats.clear();
  }

  void keep(const std::string& place, ChatTokens& chat) {
    ++num_read_;
    const auto most = static_cast<size_t>(options_.max_length);
    const bool is_long = chat.ids.size() > most;
    if (is_long && options_.too_long == TooLong::kDrop) {
      ++num_dropped_;
      return;
    }
    chat.ids.resize(std::min(chat.ids.size(), most));
    chat.counts.resize(chat.ids.size());
    if (!chat.counts.empty()) chat.counts[0] = 0;  // nothing comes before it
    if (std::find(chat.counts.begin(), chat.counts.end(), 1) == chat.counts.end()) {
      ++num_empty_;
      return;
    }
    num_cut_ += is_long ? 1 : 0;
    ids_.insert(ids_.end(), chat.ids.begin(), chat.ids.end());
    counts_.insert(counts_.end(), chat.counts.begin(), chat.counts.end());
    begins_.push_back(static_cast<int64_t>(ids_.size()));
    places_.push_back(place);
  }

  /// The conversations of a sample.
  std::vector<int64_t> chats_of(int64_t index) const {
    return options_.packing ? blocks_.at(static_cast<size_t>(index)) : std::vector<int64_t>{index};
  }
  int64_t length_of(int64_t chat) const {
    const auto i = static_cast<size_t>(chat);
    return begins_.at(i + 1) - begins_[i];
  }

  Chat options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const ChatTemplate> template_;
  std::vector<int32_t> ids_;           // of all conversations, one after the other
  std::vector<uint8_t> counts_;        // likewise
  std::vector<int64_t> begins_ = {0};  // of each, and the end
  std::vector<std::string> places_;
  std::vector<std::vector<int64_t>> blocks_;
  int64_t num_read_ = 0;
  int64_t num_empty_ = 0;
  int64_t num_dropped_ = 0;
  int64_t num_cut_ = 0;
};

Batch ChatDataset::get(const at::Tensor& indices) const {
  const int64_t n = indices.numel();
  std::vector<std::vector<int64_t>> samples;
  int64_t longest = 0;
  for (int64_t i = 0; i < n; ++i) {
    samples.push_back(chats_of(indices.const_data_ptr<int64_t>()[i]));
    int64_t length = 0;
    for (const int64_t chat : samples.back()) length += length_of(chat);
    longest = std::max(longest, length);
  }
  const at::Tensor ids = at::full({n, longest}, tokenizer_->pad_id().value_or(0), at::kLong);
  const at::Tensor mask = at::zeros({n, longest}, at::kLong);
  const at::Tensor positions = at::zeros({n, longest}, at::kLong);
  const at::Tensor labels = at::full({n, longest}, kNoLabel, at::kLong);
  for (size_t row = 0; row < samples.size(); ++row) {
    int64_t at = static_cast<int64_t>(row) * longest;
    int64_t number = 0;  // of the conversation in its sample: tokens with different numbers do not see each other
    for (const int64_t chat : samples[row]) {
      ++number;
      const int64_t begin = begins_[static_cast<size_t>(chat)];
      const int64_t length = length_of(chat);
      for (int64_t i = 0; i < length; ++i, ++at) {
        const auto token = static_cast<size_t>(begin + i);
        ids.mutable_data_ptr<int64_t>()[at] = ids_[token];
        mask.mutable_data_ptr<int64_t>()[at] = number;
        positions.mutable_data_ptr<int64_t>()[at] = i;
        if (i + 1 < length && counts_[token + 1]) labels.mutable_data_ptr<int64_t>()[at] = ids_[token + 1];
      }
    }
  }
  Batch batch;
  batch.set("input_ids", ids);
  batch.set("attention_mask", mask);
  if (options_.packing) batch.set("position_ids", positions);
  batch.set("labels", labels);
  return batch;
}

std::unique_ptr<Dataset> Chat::build(const DatasetInputs&) const { return std::make_unique<ChatDataset>(*this); }

}  // namespace

void add_chat(DatasetRegistry& datasets) {
  datasets.add<Chat>("Chat",
                     "conversations and instructions, written as the model's chat template says, of which the answers "
                     "are learnt; labels are shifted already, each the token that comes next");
}

}  // namespace trainrun
