#include "runner/recipe/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "registry/language/interpolation.h"
#include "runner/base/limits.h"
#include "runner/recipe/yaml_messages.h"
#include "runner/recipe/yaml_scan.h"
#include "runner/recipe/yaml_text.h"

namespace trainrun {
namespace {

/// Ends the parse: the problem is one after which nothing more can be said about the text.
class ParseStopped : public Error {
 public:
  explicit ParseStopped(Problem problem) : Error(problem.message), problem_(std::move(problem)) {}
  const Problem& problem() const { return problem_; }

 private:
  Problem problem_;
};

/// A finished node and what it costs.
struct BuiltNode {
  Value value;
  size_t weight = 1;  // nodes; a long text counts as several
  size_t depth = 1;
};

constexpr size_t kMaxProblems = 200;  // after which more would help nobody
constexpr std::string_view kCoreTag = "tag:yaml.org,2002:";
constexpr std::string_view kReplaceTag = "!replace";
constexpr std::string_view kRemoveTag = "!remove";

/// A core schema tag on a scalar -> the types its text may have. Anything else is unknown here.
bool fits_core_tag(std::string_view name, const Value& plain) {
  const ScalarType type = plain.scalar_type();
  if (name == "null") return type == ScalarType::kNull;
  if (name == "bool") return type == ScalarType::kBool;
  if (name == "int") return type == ScalarType::kInteger;
  return type == ScalarType::kFloat || type == ScalarType::kInteger;
}

/// Builds the Value from yaml-cpp's events.
class Builder : public YAML::EventHandler {
 public:
  Builder(const YamlText& source, std::vector<Problem>& problems, MergeTags* tags)
      : source_(source), problems_(problems), problems_before_(problems.size()), tags_(tags) {}

  Value take_root() { return std::move(root_); }
  bool saw_document() const { return saw_document_; }
  bool empty() const { return empty_; }
  /// The innermost `[` or `{` that is open, or nothing.
  const Place* open_flow() const {
    return frames_.empty() || !frames_.back().flow ? nullptr : &frames_.back().node.value.place();
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    const size_t offset = offset_of(mark);
    if (saw_document_) {
      stop(source_.place(offset), source_.at(offset, "---")
                                      ? "a second document begins here; a recipe is one document"
                                      : "text after the end of the value above; check the indentation");
    }
    saw_document_ = true;
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const size_t offset = offset_of(mark);
    const bool written = is_null_written_at(offset);
    if (!written) report_missing(offset);
    Value value = Value::null(written ? source_.place(offset) : place_of_missing(offset));
    for (const std::string_view tag : {kReplaceTag, kRemoveTag}) {  // yaml-cpp says none where the text ends behind it
      if (tags_ && is_word_at(offset, tag)) note_merge_tag(tag, value, /*is_nothing=*/true);
    }
    add({std::move(value)}, offset, anchor, !written, false);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    const size_t offset = offset_of(mark);
    check_quotes_close(offset);
    Value value = Value::scalar(with_whole_escapes(text), /*quoted=*/tag == "!", source_.place(offset));
    if (tag != "!" && tag != "?" && !tag.empty()) value = apply_tag(tag, value);
    const bool plain = !value.quoted();
    add({std::move(value), weight_of(text)}, offset, anchor, /*missing=*/false, plain);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const size_t offset = offset_of(mark);
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) stop(source_.place(offset), "this alias refers to the value it is part of");
    BuiltNode node = it->second;
    node.value = with_place(std::move(node.value), source_.place(offset));
    add(std::move(node), offset, /*anchor=*/0, /*missing=*/false, /*plain=*/false);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    open(Value::list({}, source_.place(offset_of(mark))), tag, "seq", mark, anchor, style);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    open(Value::map({}, source_.place(offset_of(mark))), tag, "map", mark, anchor, style);
  }
  void OnMapEnd() override {
    if (!frames_.back().merged.empty()) merge_into(frames_.back());
    close();
  }

 private:
  enum class KeyState { kNone, kGood, kBad };  // kBad: a problem was reported, the value will be dropped

  /// A list or map that is not finished yet.
  struct Frame {
    BuiltNode node;
    size_t offset = 0;
    YAML::anchor_t anchor = 0;
    bool flow = false;
    // Of a map: the key whose value comes next, the line of every key so far, and what `<<` brings.
    KeyState key_state = KeyState::kNone;
    std::string key;
    Place key_place;
    bool key_is_merge = false;
    bool key_is_plain = false;
    std::unordered_map<std::string, int> lines;
    std::vector<Value> merged;
  };

  size_t offset_of(const YAML::Mark& mark) const { return trainrun::offset_of(mark, source_); }

  bool expects_key() const {
    return !frames_.empty() && frames_.back().node.value.is_map() && frames_.back().key_state == KeyState::kNone;
  }

  [[noreturn]] void stop(Place place, std::string message) const {
    throw ParseStopped({std::move(place), path(), std::move(message)});
  }
  void report(Place place, std::string message) const {
    if (problems_.size() > problems_before_ + kMaxProblems) stop(std::move(place), std::move(message));
    problems_.push_back({std::move(place), path(), std::move(message)});
  }

  /// "model.layers[2].kernel_size": where the next node goes.
  std::string path() const {
    std::string text;
    for (const Frame& frame : frames_) {
      if (frame.node.value.is_list()) {
        text += "[" + std::to_string(frame.node.value.items().size()) + "]";
      } else if (!frame.key.empty() && frame.key_state != KeyState::kNone) {
        text += (text.empty() ? "" : ".") + frame.key;
      }
    }
    return text;
  }

  bool is_word_at(size_t offset, std::string_view word) const {
    const size_t end = offset + word.size();
    const bool ends = end >= source_.text().size() ||
                      std::string_view(" \n\t,]}:").find(source_.text()[end]) != std::string_view::npos;
    return source_.at(offset, word) && ends;
  }

  bool is_null_written_at(size_t offset) const {
    for (const std::string_view word : {"~", "null", "Null", "NULL"}) {
      if (is_word_at(offset, word)) return true;
    }
    return source_.at(offset, "&") || source_.at(offset, "!");
  }

  /// yaml-cpp lets pass what is a slip: `[a, , b]`, `{lr:0.1}`, `: value`.
  void report_missing(size_t offset) const {
    if (frames_.empty()) return;
    const Frame& frame = frames_.back();
    const bool key_without_value = frame.node.value.is_map() && frame.key_state == KeyState::kGood;
    if (key_without_value && frame.flow && frame.key_is_plain && frame.key.find(':') != std::string::npos) {
      report(frame.key_place, "there is no space after the colon of '" + frame.key + "'");
    } else if (frame.flow && source_.at(offset, ",") && (expects_key() || frame.node.value.is_list())) {
      report(source_.place(offset), "there is nothing before this comma");
    }
  }

  /// An absent value has no place of its own: that of its key, or of the '-' before it.
  Place place_of_missing(size_t offset) const {
    if (frames_.empty()) return source_.place(offset);
    const Frame& frame = frames_.back();
    if (frame.node.value.is_map()) {
      return frame.key_state == KeyState::kNone ? source_.place(offset) : frame.key_place;
    }
    for (size_t line = source_.line_of(offset) + 1; !frame.flow && line-- > source_.line_of(frame.offset);) {
      const std::string_view text = source_.line(line).substr(0, offset - source_.line_start(line));
      const size_t dash = text.find_first_not_of(' ');
      if (dash == std::string_view::npos || text[dash] == '#') continue;
      const size_t last_dash = text.substr(0, text.find_first_not_of(" -")).find_last_of('-');
      return source_.place(source_.line_start(line) + (last_dash == std::string_view::npos ? dash : last_dash));
    }
    return source_.place(offset);
  }

  /// yaml-cpp 0.7 takes the end of the file for the end of a quoted text.
  void check_quotes_close(size_t offset) const {
    const std::string& text = source_.text();
    size_t i = offset;
    while (i < text.size() && (text[i] == '&' || text[i] == '!')) {  // an anchor or a tag before it
      i = std::min(text.find_first_of(" \n\t", i), text.size());
      i = std::min(text.find_first_not_of(" \n\t", i), text.size());
    }
    if (i >= text.size() || (text[i] != '"' && text[i] != '\'')) return;
    const size_t start = i;
    const char quote = text[start];
    for (i = start + 1; i < text.size(); ++i) {
      const bool doubled = quote == '\'' && text.compare(i, 2, "''") == 0;
      if (text[i] == quote && !doubled) return;
      if (doubled || (quote == '"' && text[i] == '\\')) ++i;
    }
    stop(source_.place(start), "this quote is never closed");
  }

  static bool is_merge_tag(std::string_view tag) { return tag == kReplaceTag || tag == kRemoveTag; }
  /// Keeps `!replace` or `!remove` before `value`; `is_nothing`: before no value at all.
  void note_merge_tag(std::string_view tag, const Value& value, bool is_nothing) {
    const bool replaces = tag == kReplaceTag;
    if (replaces && !value.is_map()) {
      report(value.place(), "!replace stands before a mapping; anything else replaces anyway");
    } else if (!replaces && !is_nothing) {
      report(value.place(), "!remove takes the whole key away, so nothing stands behind it");
    } else if (!replaces && (expects_key() || (!frames_.empty() && frames_.back().node.value.is_list()))) {
      report(value.place(), "!remove takes away a key of a mapping, not an item of a list; write the whole list");
    } else {
      tags_->add(value.place(), replaces ? MergeTag::kReplace : MergeTag::kRemove);
    }
  }

  Value apply_tag(std::string_view tag, const Value& plain) {
    if (tags_ && is_merge_tag(tag)) {
      note_merge_tag(tag, plain, plain.text().empty());
      return Value::null(plain.place());
    }
    const std::string_view name = tag.starts_with(kCoreTag) ? tag.substr(kCoreTag.size()) : std::string_view();
    if (name == "str") return Value::scalar(plain.text(), /*quoted=*/true, plain.place());
    if (name == "null" || name == "bool" || name == "int" || name == "float") {
      if (!fits_core_tag(name, plain))
        report(plain.place(), "'" + plain.text() + "' is not of type " + std::string(name));
    } else {
      report_unknown_tag(tag, plain.place());
    }
    return plain.scalar_type() == ScalarType::kNull ? Value::null(plain.place()) : plain;
  }

  void report_unknown_tag(std::string_view tag, const Place& place) const {
    const bool core = tag.starts_with(kCoreTag);
    const std::string shown = core ? "!!" + std::string(tag.substr(kCoreTag.size())) : std::string(tag);
    report(place, "unknown tag " + shown + (tags_ ? "; a recipe's tags are !replace and !remove" : ""));
  }

  void count(size_t weight) {
    total_weight_ += weight;
    if (total_weight_ > kMaxRecipeValues) {
      stop(frames_.empty() ? source_.place(0) : frames_.back().node.value.place(),
           "more than " + std::to_string(kMaxRecipeValues) + " values once its aliases are expanded");
    }
  }

  void open(Value value, const std::string& tag, std::string_view core_name, const YAML::Mark& mark,
            YAML::anchor_t anchor, YAML::EmitterStyle::value style) {
    if (tags_ && is_merge_tag(tag)) {
      note_merge_tag(tag, value, /*is_nothing=*/false);
    } else if (!tag.empty() && tag != "?" && tag != "!" && tag != std::string(kCoreTag) + std::string(core_name)) {
      report_unknown_tag(tag, value.place());
    }
    if (frames_.size() >= kMaxRecipeDepth) {
      stop(value.place(), "nested deeper than " + std::to_string(kMaxRecipeDepth) + " levels");
    }
    count(1);
    Frame frame;
    frame.node.value = std::move(value);
    frame.offset = offset_of(mark);
    frame.anchor = anchor;
    frame.flow = style == YAML::EmitterStyle::Flow;
    frames_.push_back(std::move(frame));
  }

  void close() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    total_weight_ -= frame.node.weight;  // add() counts it again, whole
    add(std::move(frame.node), frame.offset, frame.anchor, /*missing=*/false, /*plain=*/false);
  }

  /// A finished node goes to its anchor and into the list or map around it.
  void add(BuiltNode node, size_t offset, YAML::anchor_t anchor, bool missing, bool plain) {
    count(node.weight);
    if (frames_.size() + node.depth > kMaxRecipeDepth) {
      stop(node.value.place(),
           "nested deeper than " + std::to_string(kMaxRecipeDepth) + " levels once its aliases are expanded");
    }
    if (anchor) anchors_[anchor] = node;
    if (frames_.empty()) {
      empty_ = missing;
      root_ = std::move(node.value);
      return;
    }
    Frame& frame = frames_.back();
    frame.node.weight += node.weight;
    if (expects_key()) {
      set_key(frame, node.value, offset, plain);
      return;
    }
    const bool merges = frame.node.value.is_map() && frame.key_is_merge;  // the merged map's entries become this one's
    frame.node.depth = std::max(frame.node.depth, node.depth + (merges ? 0 : 1));
    if (frame.node.value.is_list()) {
      frame.node.value.items().push_back(std::move(node.value));
      return;
    }
    set_value(frame, std::move(node.value));
    frame.key_state = KeyState::kNone;
  }

  void set_key(Frame& frame, const Value& key, size_t offset, bool plain) {
    frame.key_state = KeyState::kBad;
    frame.key_place = key.place();
    frame.key.clear();
    if (!key.is_scalar()) {
      if (source_.at(offset, ",")) return;  // report_missing spoke
      report(key.place(), source_.at(offset, ":") ? "a key is missing before the colon"
                                                  : "a key must be a string, found " + key.describe() +
                                                        (key.is_null() ? "; put it in quotes if it is meant" : ""));
      return;
    }
    if (key.text().size() > kMaxKeyBytes)
      stop(key.place(), "a key of more than " + std::to_string(kMaxKeyBytes) + " bytes");
    frame.key = key.text();
    frame.key_is_plain = plain;
    frame.key_is_merge = plain && frame.key == "<<";
    const auto [it, is_new] = frame.lines.emplace((frame.key_is_merge ? "m" : "k") + frame.key, key.place().line);
    if (!is_new) {
      report(key.place(), (frame.key_is_merge ? "a second <<; merge a list of mappings" : "duplicate key") +
                              std::string("; the first is on line ") + std::to_string(it->second));
      return;
    }
    frame.key_state = KeyState::kGood;
  }

  void set_value(Frame& frame, Value value) {
    if (frame.key_state == KeyState::kBad) return;
    if (!frame.key_is_merge) {
      frame.node.value.entries().push_back({frame.key, frame.key_place, std::move(value)});
      return;
    }
    std::vector<Value> maps;
    if (value.is_list()) {
      maps = std::move(value.items());
    } else {
      maps.push_back(std::move(value));
    }
    for (Value& map : maps) {
      if (map.is_map()) {
        frame.merged.push_back(std::move(map));
      } else {
        report(map.place(), "<< merges a mapping or a list of mappings, found " + map.describe());
      }
    }
  }

  /// What `<<` brings comes first; the map's own keys win, then the earlier of the merged maps.
  static void merge_into(Frame& frame) {
    std::vector<Value::Entry> entries;
    std::unordered_map<std::string, size_t> positions;
    for (Value& map : frame.merged) {
      for (Value::Entry& entry : map.entries()) {
        if (positions.emplace(entry.key, entries.size()).second) entries.push_back(std::move(entry));
      }
    }
    for (Value::Entry& entry : frame.node.value.entries()) {
      const auto [it, is_new] = positions.emplace(entry.key, entries.size());
      if (is_new) {
        entries.push_back(std::move(entry));
      } else {
        entries[it->second] = std::move(entry);
      }
    }
    frame.node.value.entries() = std::move(entries);
  }

  const YamlText& source_;
  std::vector<Problem>& problems_;
  size_t problems_before_;
  MergeTags* tags_;  // null: there are none
  std::vector<Frame> frames_;
  std::unordered_map<YAML::anchor_t, BuiltNode> anchors_;
  size_t total_weight_ = 0;
  Value root_;
  bool saw_document_ = false;
  bool empty_ = true;
};

Value parse_source(const YamlText& source, std::vector<Problem>& problems, MergeTags* tags) {
  const size_t problems_before = problems.size();
  Builder builder(source, problems, tags);
  try {
    std::istringstream stream(source.text());
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const ParseStopped& stopped) {
    problems.push_back(stopped.problem());
    return {};
  } catch (const YAML::Exception& error) {
    if (error.msg == YAML::ErrorMsg::EOF_IN_SCALAR && !source.text().ends_with('\n')) {
      // Once more with a last line break: then yaml-cpp hands the text out, and check_quotes_close() knows where it
      // began.
      problems.resize(problems_before);
      return parse_source(source.with_last_newline(), problems, tags);
    }
    problems.push_back(syntax_problem(error, source, builder.open_flow()));
    return {};
  }
  if (!builder.saw_document() || builder.empty()) {
    problems.push_back({source.place(0), "", "the file is empty; expected a mapping (key: value)"});
    return {};
  }
  return builder.take_root();
}

}  // namespace

Value parse_yaml(const std::string& text, std::shared_ptr<const std::string> file, std::vector<Problem>& problems,
                 MergeTags* tags) {
  const YamlText source(text, std::move(file));
  auto problem = source.find_unreadable();
  if (!problem) problem = find_false_blank(source);
  if (problem) {
    problems.push_back(std::move(*problem));
    return {};
  }
  return parse_source(source, problems, tags);
}

}  // namespace trainrun
