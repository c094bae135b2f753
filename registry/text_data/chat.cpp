#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <set>
#include <span>

#include "registry/data/data_file.h"
#include "registry/data/sample_lengths.h"
#include "registry/kinds/dataset.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/error.h"
#include "registry/text_data/chat_tokens.h"
#include "registry/text_data/first_rows.h"
#include "registry/text_data/template_on_demand.h"
#include "registry/text_data/text_fields.h"
#include "registry/text_data/token_cache.h"
#include "registry/text_data/token_windows.h"

// Conversations, of which the answers are learnt.

namespace trainrun {

enum class TooLong { kTruncate, kDrop };
template <>
struct Words<TooLong> {
  static constexpr std::array kWords = {"truncate", "drop"};
};

namespace {

namespace fs = std::filesystem;

struct Chat : TemplateOptions, NewTokens {
  std::string path;
  std::string tokenizer;
  std::optional<std::string> system;
  TrainOn train_on = TrainOn::kAnswers;
  int64_t max_length = 1024;
  TooLong too_long = TooLong::kTruncate;
  bool packing = false;
  TokenCaching cache = TokenCaching::kNone;
  static void describe(Fields<Chat>& f) {
    f.required("path", &Chat::path)
        .doc(
            "a .jsonl file, an object in each line, or a .json file, a list of objects, plain or .gz; or a .parquet, "
            ".arrow or .feather file, an object in each row. An object has `messages` as OpenAI writes them, "
            "`conversations` as ShareGPT does, `prompt` and `completion`, or "
            "`instruction`, `input` and `output` as Alpaca does");
    f.required("tokenizer", &Chat::tokenizer)
        .doc("a folder in Hugging Face's layout, or one of a tokenizer's files; its chat template is in its folder");
    NewTokens::describe_into(f);
    TemplateOptions::describe_into(f);
    f.optional("system", &Chat::system).doc("the system message of conversations that have none; null: none");
    f.optional("train_on", &Chat::train_on)
        .doc(
            "the tokens that count in the loss: all answers of the assistant except those with weight: 0; the last "
            "one; "
            "or all tokens. All others have the label -100, which losses ignore");
    f.optional("max_length", &Chat::max_length).at_least(2).unit("tokens").doc("maximum number of tokens of a sample");
    f.optional("too_long", &Chat::too_long)
        .doc("truncate: a longer conversation is cut off at its end; drop: it is left out");
    f.optional("packing", &Chat::packing)
        .doc(
            "put several conversations into one sample, as many as fit into max_length; they do not attend to each "
            "other, and the positions of each begin at 0. The model has to read attention_mask and position_ids");
    f.optional("cache", &Chat::cache).doc(kTokenCachingHelp);
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

constexpr size_t kChatArrays = 5;

/// What EncodedChats::numbers count: conversations that were read; without a token to learn; too long and left out; cut;
/// with a message of an unusual role, and the first of them; with an answer that says nothing, and the first of them.
enum Count : size_t { kRead, kEmpty, kDropped, kCut, kOtherRole, kFirstOther, kSilent, kFirstSilent, kNumCounts };

/// Conversations as tokens.
struct EncodedChats {
  std::vector<int32_t> ids;           // of all conversations, one after the other
  std::vector<uint8_t> counts;        // likewise: 1 where the token is to be predicted
  std::vector<int64_t> begins = {0};  // of each, and the end
  std::string places;                 // of each, what comes after the file's name, as ":7", and a 0 after it
  std::vector<int64_t> numbers = std::vector<int64_t>(kNumCounts, 0);

  ByteArrays arrays(std::shared_ptr<const void> owner) const {
    return {std::move(owner), {bytes_of(ids), bytes_of(counts), bytes_of(begins), places, bytes_of(numbers)}};
  }
};
/// Whether a message has a role that templates do not know.
bool has_other_role(const nlohmann::ordered_json& message) {
  static const std::set<std::string> known = {"system", "developer", "user",   "assistant",
                                              "tool",   "function",  "ipython"};
  return !known.contains(message.value("role", std::string()));
}

/// Whether a message neither says nor calls anything.
bool is_silent(const nlohmann::ordered_json& message) {
  const auto content = message.find("content");
  const auto calls = message.find("tool_calls");
  if (calls != message.end() && !calls->empty()) return false;
  return content == message.end() || content->empty() ||
         (content->is_string() && content->get_ref<const std::string&>().empty());
}

class ChatMaker {
 public:
  ChatMaker(const Chat& options, std::shared_ptr<const Tokenizer> tokenizer, TemplateOnDemand& chat_template)
      : options_(options), tokenizer_(std::move(tokenizer)), source_(chat_template) {}

  ByteArrays make() {
    std::vector<Conversation> waiting;
    for_each_conversation(options_.path, options_.system, [&](Conversation chat) {
      constexpr size_t kAtOnce = 512;
      if (!chat.plain && !template_) template_ = source_.get();
      waiting.push_back(std::move(chat));
      if (waiting.size() == kAtOnce) take(waiting);
    });
    take(waiting);
    return made_->arrays(made_);
  }

 private:
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
      count_unusual(chats[i]);
      keep(chats[i].place, encoded[i]);
    }
    chats.clear();
  }

  /// Counts what is hardly meant.
  void count_unusual(const Conversation& chat) {
    const auto count = [this](Count what, Count first) {
      if (made_->numbers[what]++ == 0) made_->numbers[first] = made_->numbers[kRead] + 1;
    };
    if (std::any_of(chat.messages.begin(), chat.messages.end(), has_other_role)) count(kOtherRole, kFirstOther);
    for (size_t i = 0; i < chat.messages.size(); ++i) {
      if (!chat.is_answer[i] || !is_silent(chat.messages[i])) continue;
      count(kSilent, kFirstSilent);
      return;
    }
  }

  void keep(const std::string& place, ChatTokens& chat) {
    ++made_->numbers[kRead];
    const auto most = static_cast<size_t>(options_.max_length);
    const bool is_long = chat.ids.size() > most;
    if (is_long && options_.too_long == TooLong::kDrop) {
      ++made_->numbers[kDropped];
      return;
    }
    chat.ids.resize(std::min(chat.ids.size(), most));
    chat.counts.resize(chat.ids.size());
    if (!chat.counts.empty()) chat.counts[0] = 0;  // nothing comes before it
    if (std::find(chat.counts.begin(), chat.counts.end(), 1) == chat.counts.end()) {
      ++made_->numbers[kEmpty];
      return;
    }
    made_->numbers[kCut] += is_long ? 1 : 0;
    made_->ids.insert(made_->ids.end(), chat.ids.begin(), chat.ids.end());
    made_->counts.insert(made_->counts.end(), chat.counts.begin(), chat.counts.end());
    made_->begins.push_back(static_cast<int64_t>(made_->ids.size()));
    made_->places += place.substr(options_.path.size()) + '\0';
  }

  const Chat& options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  TemplateOnDemand& source_;
  std::shared_ptr<const ChatTemplate> template_;  // null until a conversation needs it
  std::shared_ptr<EncodedChats> made_ = std::make_shared<EncodedChats>();
};

/// Names all that the arrays depend on.
std::string cache_key(const Chat& options, TemplateOnDemand& chat_template) {
  TokenCacheKey key("chats, weighed, roles counted");
  key.add_tokenizer(options.in(options.tokenizer))
      .add_file(options.path)
      .add(fs::path(options.path).extension().string());
  chat_template.add_to(key);
  key.add(options.system ? 1 : 0).add(options.system.value_or(""));
  key.add(static_cast<int64_t>(options.train_on)).add(options.max_length).add(static_cast<int64_t>(options.too_long));
  return key.finish();
}

class ChatDataset : public Dataset {
 public:
  explicit ChatDataset(Chat options) : options_(std::move(options)) {}

  DatasetInfo info() const override {
    if (places_.empty() && !is_large_list()) {
      look_at_first_rows(options_.path, [&](const std::function<void()>& count) {
        for_each_conversation(options_.path, options_.system, [&](const Conversation&) { count(); });
      });
    }
    DatasetInfo info;
    std::vector<const char*> names = {"input_ids", "attention_mask"};
    if (options_.packing) names.push_back("position_ids");
    names.push_back("labels");
    for (const char* name : names) info.fields.push_back({name, {options_.max_length}, at::kLong, std::nullopt});
    info.target = "labels";
    return info;
  }
  void open() override {
    tokenizer_ = open_tokenizer(options_.in(options_.tokenizer));
    TemplateOnDemand chat_template(options_.in(options_.tokenizer), options_);
    const auto make = [&] { return ChatMaker(options_, tokenizer_, chat_template).make(); };
    const bool keeps = options_.cache == TokenCaching::kDisk;
    use(keeps ? arrays_on_disk(cache_key(options_, chat_template), kChatArrays, make) : make());
    if (numbers_[kRead] == 0) throw DataError(options_.path + ": has no conversations");
    if (places_.empty()) throw DataError(options_.path + ": " + notes()[0]);
    if (options_.packing) {
      std::vector<int64_t> lengths;
      for (size_t i = 0; i < places_.size(); ++i) lengths.push_back(begins_[i + 1] - begins_[i]);
      blocks_ = packed(lengths, options_.max_length);
    }
  }
  int64_t size() const override { return static_cast<int64_t>(options_.packing ? blocks_.size() : places_.size()); }
  Batch get(const at::Tensor& indices) const override;
  DatasetFacts facts() const override {
    DatasetFacts facts;
    facts.field = [this](const std::string& name) { return text_field(name, tokenizer_.get()); };
    facts.place = [this](int64_t index, const std::string& field) {
      const int64_t first = chats_of(index).front();
      return options_.path + std::string(places_.at(static_cast<size_t>(first))) + ":" + field;
    };
    facts.lengths = [this] { return lengths(); };
    facts.notes = [this] { return notes(); };
    return facts;
  }

 private:
  /// A list of which the first conversations cannot be read alone, and which takes long to read.
  bool is_large_list() const {
    constexpr uintmax_t kLarge = uintmax_t{1} << 24;
    std::error_code unreadable;
    const auto bytes = fs::file_size(options_.path, unreadable);
    const bool is_list = has_extension(options_.path, ".json");
    return !unreadable && is_list && bytes > kLarge;
  }
  at::Tensor lengths() const {
    if (!options_.packing) return lengths_between(begins_);
    std::vector<int64_t> lengths;
    for (const std::vector<int64_t>& block : blocks_) {
      lengths.push_back(0);
      for (const int64_t chat : block) lengths.back() += length_of(chat);
    }
    return at::tensor(lengths, at::kLong);
  }
  std::vector<std::string> notes() const {
    std::vector<std::string> told;
    const std::string limit = " max_length of " + std::to_string(options_.max_length) + " tokens";
    const std::string of = " of " + std::to_string(numbers_[kRead]) + " conversations ";
    const auto are = [](int64_t count) { return count == 1 ? "is" : "are"; };
    if (numbers_[kEmpty] > 0) {
      told.push_back(std::to_string(numbers_[kEmpty]) + of + are(numbers_[kEmpty]) +
                     " left out, since there is no token to learn within the" + limit);
    }
    if (numbers_[kDropped] > 0) {
      told.push_back(std::to_string(numbers_[kDropped]) + of + are(numbers_[kDropped]) +
                     " left out as longer than the" + limit);
    }
    if (numbers_[kCut] > 0)
      told.push_back(std::to_string(numbers_[kCut]) + of + are(numbers_[kCut]) + " cut off at the" + limit);
    const auto have = [](int64_t count) { return count == 1 ? "has" : "have"; };
    if (numbers_[kOtherRole] > 0) {
      told.push_back(std::to_string(numbers_[kOtherRole]) + of + have(numbers_[kOtherRole]) +
                     " messages of other roles than system, user, assistant and tool, the first number " +
                     std::to_string(numbers_[kFirstOther]) +
                     "; the template alone decides what becomes of them, and nothing of them is learnt as an answer");
    }
    if (numbers_[kSilent] > 0) {
      told.push_back(std::to_string(numbers_[kSilent]) + of + have(numbers_[kSilent]) +
                     " an answer without text, the first number " + std::to_string(numbers_[kFirstSilent]) +
                     ", from which the model learns to say nothing");
    }
    return told;
  }

  void use(ByteArrays arrays) {
    arrays_ = std::move(arrays);
    ids_ = numbers_in<int32_t>(arrays_.arrays.at(0));
    counts_ = numbers_in<uint8_t>(arrays_.arrays.at(1));
    begins_ = numbers_in<int64_t>(arrays_.arrays.at(2));
    std::string_view places = arrays_.arrays.at(3);
    for (size_t end = places.find('\0'); end != std::string_view::npos; end = places.find('\0')) {
      places_.push_back(places.substr(0, end));
      places.remove_prefix(end + 1);
    }
    numbers_ = numbers_in<int64_t>(arrays_.arrays.at(4));
    const bool fits = are_begins(begins_, places_.size(), ids_.size()) && counts_.size() == ids_.size() &&
                      numbers_.size() == kNumCounts;
    if (!fits) throw DataError(options_.path + ": was changed while it was read");
  }

  /// The conversations of a sample.
  std::vector<int64_t> chats_of(int64_t index) const {
    return options_.packing ? blocks_.at(static_cast<size_t>(index)) : std::vector<int64_t>{index};
  }
  int64_t length_of(int64_t chat) const {
    const auto i = static_cast<size_t>(chat);
    return begins_[i + 1] - begins_[i];
  }

  Chat options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  ByteArrays arrays_;  // where the next five lie: see EncodedChats
  std::span<const int32_t> ids_;
  std::span<const uint8_t> counts_;
  std::span<const int64_t> begins_;
  std::vector<std::string_view> places_;
  std::span<const int64_t> numbers_;
  std::vector<std::vector<int64_t>> blocks_;
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
                     "conversations and instructions, formatted by the model's chat template; the model learns the "
                     "answers. Labels are already shifted: each is the next token");
}

}  // namespace trainrun
