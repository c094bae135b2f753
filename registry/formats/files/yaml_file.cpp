#include "registry/formats/files/yaml_file.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>
#include <unordered_map>
#include <vector>

#include "registry/language/error.h"

namespace trainrun {
namespace {

using nlohmann::json;

/// A value and what it takes.
struct YamlValue {
  json value;
  size_t count = 1;  // of values in it
  size_t depth = 1;
};

class JsonBuilder : public YAML::EventHandler {
 public:
  JsonBuilder(std::string place, int first_line) : place_(std::move(place)), first_line_(first_line) {}

  json take() { return std::move(root_); }
  [[noreturn]] void fail(int line, const std::string& fault) const {
    throw DataError(place_ + ":" + std::to_string(first_line_ + std::max(line, 0)) + ": " + fault);
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (has_document_) fail(mark.line, "a second YAML document begins here");
    has_document_ = true;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add({}, anchor, mark); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, const std::string& text) override {
    add({text}, anchor, mark);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) fail(mark.line, "this alias refers to the value that it is part of");
    add(found->second, 0, mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(json::array(), anchor, mark);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(json::object(), anchor, mark);
  }
  void OnMapEnd() override { end(); }

 private:
  static constexpr size_t kDeepest = 32;
  static constexpr size_t kMostValues = 200'000;

  struct Frame {
    YamlValue node;
    YAML::anchor_t anchor = 0;
    YAML::Mark mark;
    bool has_key = false;
    std::string key;
  };

  void begin(json value, YAML::anchor_t anchor, const YAML::Mark& mark) {
    if (frames_.size() >= kDeepest) fail(mark.line, "is nested too deeply");
    frames_.push_back({{std::move(value)}, anchor, mark, false, {}});
  }
  void end() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    add(std::move(frame.node), frame.anchor, frame.mark);
  }
  void add(YamlValue node, YAML::anchor_t anchor, const YAML::Mark& mark) {
    if (frames_.size() + node.depth > kDeepest) fail(mark.line, "is nested too deeply");
    count_ += node.count;  // those within a list once more for each level, of which there are few
    if (count_ > kMostValues) fail(mark.line, "holds too many values");
    if (anchor) anchors_[anchor] = node;
    if (frames_.empty()) {
      root_ = std::move(node.value);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.node.value.is_object() && !frame.has_key) {
      set_key(frame, node.value, mark);
      return;
    }
    frame.node.count += node.count;
    frame.node.depth = std::max(frame.node.depth, node.depth + 1);
    if (frame.node.value.is_array()) {
      frame.node.value.push_back(std::move(node.value));
    } else {
      frame.node.value[frame.key] = std::move(node.value);
      frame.has_key = false;
    }
  }
  void set_key(Frame& frame, const json& key, const YAML::Mark& mark) const {
    if (!key.is_string() && !key.is_null()) fail(mark.line, "a key is a list or a mapping; expected a text");
    frame.key = key.is_null() ? "null" : key.get<std::string>();
    if (frame.node.value.contains(frame.key)) fail(mark.line, "the key '" + frame.key + "' occurs twice");
    frame.has_key = true;
  }

  std::string place_;
  int first_line_;
  bool has_document_ = false;
  std::vector<Frame> frames_;
  std::unordered_map<YAML::anchor_t, YamlValue> anchors_;
  size_t count_ = 0;
  json root_;
};

}  // namespace

json read_yaml(const std::string& text, const std::string& place, int first_line) {
  JsonBuilder builder(place, first_line);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    builder.fail(error.mark.line, "is not YAML: " + error.msg);
  }
  return builder.take();
}

}  // namespace trainrun
