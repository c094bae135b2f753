#include "registry/text_data/chat_tokens.h"

#include <algorithm>

#include "registry/language/error.h"

namespace trainrun {
namespace {

using nlohmann::ordered_json;

/// How much two rows have in common at their begin.
template <class Row>
size_t common(const Row& a, const Row& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

std::string stripped(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

ChatTokens narrowed(const std::vector<int64_t>& ids) {
  return {std::vector<int32_t>(ids.begin(), ids.end()), std::vector<uint8_t>(ids.size(), 0)};
}

}  // namespace

ChatEncoder::ChatEncoder(std::shared_ptr<const Tokenizer> tokenizer, std::shared_ptr<const ChatTemplate> chat_template,
                         TrainOn train_on)
    : tokenizer_(std::move(tokenizer)), template_(std::move(chat_template)), train_on_(train_on) {}

std::vector<int64_t> ChatEncoder::tokens(const std::string& text) const {
  return tokenizer_->encode(text, /*add_special_tokens=*/false).ids;
}

ChatTokens ChatEncoder::encode(const Conversation& chat) const {
  try {
    return chat.plain ? of_texts(chat) : of_template(chat);
  } catch (const DataError& error) {
    throw DataError(chat.place + ": " + error.what());
  }
}

/// A prompt and its completion, with the special tokens that the tokenizer puts around a text, and the end of the text.
ChatTokens ChatEncoder::of_texts(const Conversation& chat) const {
  const auto& [prompt, completion] = *chat.plain;
  const std::string whole = prompt + completion;
  const Encoding encoding = tokenizer_->encode(whole);
  std::vector<int64_t> own;  // without special tokens
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    if (!encoding.special[i]) own.push_back(encoding.ids[i]);
  }
  const size_t begin = border(whole, own, prompt.size()).ended;
  ChatTokens made = narrowed(encoding.ids);
  size_t passed = 0;  // of its own tokens
  for (size_t i = 0; i < made.ids.size(); ++i) {
    const bool is_special = encoding.special[i];
    made.counts[i] = train_on_ == TrainOn::kAll || (is_special ? passed == own.size() : passed >= begin) ? 1 : 0;
    passed += is_special ? 0 : 1;
  }
  const auto end = tokenizer_->special_id("eos");
  if (end && (made.ids.empty() || made.ids.back() != *end)) {
    made.ids.push_back(static_cast<int32_t>(*end));
    made.counts.push_back(1);
  }
  return made;
}

std::vector<bool> ChatEncoder::wanted(const Conversation& chat) const {
  std::vector<bool> answers = chat.is_answer;
  if (train_on_ == TrainOn::kAll) return answers;
  const auto last = std::find(answers.rbegin(), answers.rend(), true);
  if (last == answers.rend()) {
    std::vector<std::string> roles;
    for (const auto& message : chat.messages) {
      std::string role = message.value("role", "");
      if (std::find(roles.begin(), roles.end(), role) == roles.end()) roles.push_back(std::move(role));
    }
    throw DataError("there is no answer of the assistant to be learnt (roles: " + join(roles) + ")");
  }
  if (train_on_ == TrainOn::kLastAnswer) std::fill(last + 1, answers.rend(), false);
  return answers;
}

ChatTokens ChatEncoder::of_template(const Conversation& chat) const {
  const std::vector<bool> answers = wanted(chat);
  const ordered_json* tools = chat.tools.is_null() ? nullptr : &chat.tools;
  const ChatText whole = template_->render(chat.messages, tools);
  const std::vector<int64_t> ids = tokens(whole.text);
  ChatTokens made = narrowed(ids);
  std::vector<Stretch> stretches;
  if (train_on_ == TrainOn::kAll) {
    stretches.emplace_back(0, ids.size());
  } else if (template_->marks_answers()) {
    stretches = marked(chat, whole, ids);
  } else {
    for (size_t i = 0; i < answers.size(); ++i) {
      if (answers[i]) stretches.push_back(found(chat, i, whole.text, ids));
    }
  }
  for (const auto& [begin, end] : stretches) {
    for (size_t i = begin; i < end; ++i) made.counts[i] = 1;
  }
  return made;
}

/// A text's begin, taken for itself, mostly has the tokens with which the whole begins. Where it has not, the tokens of the
/// whole are decoded up to there; a tokenizer that loses characters leaves it at where they begin to differ.
ChatEncoder::Border ChatEncoder::border(const std::string& whole, const std::vector<int64_t>& ids, size_t byte) const {
  constexpr size_t kMostDecoded = 64;
  if (byte == whole.size()) return {ids.size(), ids.size()};
  const std::vector<int64_t> begin = tokens(whole.substr(0, byte));
  const size_t shared = common(begin, ids);
  if (shared == begin.size()) return {shared, shared};
  for (size_t count = shared; count <= std::min(shared + kMostDecoded, ids.size()); ++count) {
    const std::vector<int64_t> first(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
    const std::string text = tokenizer_->decode(first, /*skip_special_tokens=*/false);
    if (text.size() < byte || !whole.starts_with(text)) continue;
    return text.size() == byte ? Border{count, count} : Border{count - 1, count};
  }
  return {shared, std::min(shared + 1, ids.size())};
}

ChatEncoder::Stretch ChatEncoder::stretch(const std::string& whole, const std::vector<int64_t>& ids, size_t begin,
                                          size_t end) const {
  return {border(whole, ids, begin).ended, border(whole, ids, end).begun};
}

/// The answers that the template marks by {% generation %}.
std::vector<ChatEncoder::Stretch> ChatEncoder::marked(const Conversation& chat, const ChatText& whole,
                                                      const std::vector<int64_t>& ids) const {
  const std::vector<bool> answers = wanted(chat);
  std::vector<bool> chosen;  // of the messages that the assistant says
  for (size_t i = 0; i < answers.size(); ++i) {
    if (chat.messages[i]["role"] == "assistant") chosen.push_back(answers[i]);
  }
  if (chosen.size() != whole.answers.size()) {
    const bool all = std::find(chosen.begin(), chosen.end(), false) == chosen.end();
    if (!all || whole.answers.empty()) {
      throw DataError("the template marks " + std::to_string(whole.answers.size()) +
                      " answers by {% generation %}, but " + std::to_string(chosen.size()) +
                      " messages are the assistant's");
    }
    chosen.assign(whole.answers.size(), true);
  }
  std::vector<Stretch> stretches;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const auto& [begin, end] = whole.answers[i];
    if (chosen[i] && end > begin) stretches.push_back(stretch(whole.text, ids, begin, end));
  }
  return stretches;
}

/// Where an answer lies, by what the template makes of the conversation up to it, and with it.
ChatEncoder::Stretch ChatEncoder::found(const Conversation& chat, size_t answer, const std::string& whole,
                                        const std::vector<int64_t>& ids) const {
  const ordered_json* tools = chat.tools.is_null() ? nullptr : &chat.tools;
  const auto begin = chat.messages.begin();
  const auto up_to = [&](size_t count) {
    return ordered_json(ordered_json::array_t(begin, begin + static_cast<std::ptrdiff_t>(count)));
  };
  const auto fail = [&](const char* what) {
    throw DataError(template_->place() + " does not tell where the answer in message " + std::to_string(answer) + " " +
                    what +
                    " in the whole conversation; mark answers in the template by {% generation %}, or use train_on: "
                    "last_answer or all");
  };
  const std::string before = template_->render(up_to(answer), tools, /*add_generation_prompt=*/true).text;
  if (!whole.starts_with(before)) fail("begins, since what comes before it is not written the same way");
  const std::string with = template_->render(up_to(answer + 1), tools).text;
  const size_t shared = common(with, whole);
  const auto content = chat.messages[answer].find("content");
  const bool has_text = content != chat.messages[answer].end() && content->is_string();
  const bool holds =
      shared > before.size() &&
      (shared == with.size() ||
       (has_text && whole.substr(before.size(), shared - before.size()).find(stripped(*content)) != std::string::npos));
  if (!holds) fail("ends, since it is not written the same way");
  if (shared == with.size()) return stretch(whole, ids, before.size(), shared);
  return {stretch(whole, ids, before.size(), whole.size()).first, common(tokens(with), ids)};
}

}  // namespace trainrun
