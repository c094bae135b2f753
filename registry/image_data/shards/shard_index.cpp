#include "registry/image_data/shards/shard_index.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "registry/formats/files/json_depth.h"
#include "registry/image_data/image_files.h"
#include "registry/image_data/shards/tar_reader.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "registry/language/text_number.h"
#include "registry/language/text_view.h"

namespace trainrun {
namespace {

constexpr uint64_t kMostLabelBytes = uint64_t{1} << 20;
constexpr uint64_t kMostImageBytes = uint64_t{1} << 30;
constexpr std::string_view kJson = "json.";

/// "a/0001.seg.png" is "a/0001" and "seg.png"; a name that has no dot, or begins with one, belongs to no sample.
struct MemberName {
  explicit MemberName(const std::string& name) {
    const size_t slash = name.rfind('/');
    const size_t begin = slash == std::string::npos ? 0 : slash + 1;
    const size_t dot = name.find('.', begin);
    if (dot == std::string::npos || dot == begin) return;
    stem = name.substr(0, dot);
    ending = lower_ascii(name.substr(dot + 1));
  }
  std::string stem;  // empty: of no sample
  std::string ending;
};

std::string shown_label(const std::string& text) {
  constexpr size_t kMost = 40;
  std::string shown = text;
  for (char& c : shown) c = c >= ' ' && c <= '~' ? c : '?';  // it may be anything
  return "'" + shortened(shown, kMost) + "'";
}

/// Whether a member, or a folder that it lies in, has a hidden name; "." and ".." are none.
bool is_hidden_path(const std::string& path) {
  for (const std::filesystem::path& part : std::filesystem::path(path)) {
    if (part != "." && part != ".." && is_hidden_name(part.string())) return true;
  }
  return false;
}

class ShardReader {
 public:
  ShardReader(std::unique_ptr<TarSource> shard, const ShardNames& names, PassedOver& passed_over)
      : path_(shard->name()), tar_(std::move(shard)), names_(names), passed_over_(passed_over) {}

  std::vector<ShardSample> read() {
    while (const auto member = tar_.next()) {
      const MemberName name(member->name);
      if (name.stem.empty() || is_hidden_path(member->name)) {
        const bool is_hidden = is_hidden_path(member->name);
        passed_over_.add(is_hidden ? PassedOver::kHidden : PassedOver::kNoSample, member->name);
        continue;
      }
      if (name.stem != stem_) finish_sample();
      stem_ = name.stem;
      add(*member, name.ending);
    }
    finish_sample();
    return std::move(samples_);
  }

 private:
  [[noreturn]] void fail(const std::string& member, const std::string& what) const {
    throw DataError(path_ + ":" + member + ": " + what);
  }
  bool is_image(const std::string& ending) const {
    return names_.image ? ending == *names_.image : is_image_name("image." + ending);
  }
  bool has_json_labels() const { return names_.label.starts_with(kJson); }
  bool is_label(const std::string& ending) const {
    return ending == (has_json_labels() ? std::string_view("json") : std::string_view(names_.label));
  }

  void add(const TarReader::Member& member, const std::string& ending) {
    if (is_image(ending)) {
      if (image_) fail(member.name, "is a second image of its sample, after " + image_->name + "; say which by image");
      if (member.size > kMostImageBytes) fail(member.name, "has more than 1 GiB");
      image_ = {member.name, member.offset, member.size, 0};
    } else if (is_label(ending)) {
      if (label_) fail(member.name, "is a second label of its sample");
      label_ = label_in(member.name, tar_.read(kMostLabelBytes));
    }
  }

  int64_t label_in(const std::string& member, const std::string& content) const {
    const std::string text = has_json_labels() ? text_in_json(member, content) : content;
    const auto number = number_of<int64_t>(without_space(text));
    if (!number || *number < 0) fail(member, "the label is " + shown_label(text) + ", not a number from 0");
    if (names_.num_classes && *number >= *names_.num_classes) {
      fail(member,
           "the label is " + std::to_string(*number) + ", num_classes is " + std::to_string(*names_.num_classes));
    }
    return *number;
  }

  std::string text_in_json(const std::string& member, const std::string& content) const {
    constexpr int kDeepest = 64;
    check_json_depth(content, kDeepest, path_ + ":" + member);
    const nlohmann::json json = nlohmann::json::parse(content, nullptr, false);
    const std::string key = names_.label.substr(kJson.size());
    if (!json.is_object() || !json.contains(key)) fail(member, "is not a JSON object that has '" + key + "'");
    const nlohmann::json& label = json[key];
    if (label.is_structured()) fail(member, "'" + key + "' is a list or an object, not a number from 0");
    if (label.is_string()) return label.get<std::string>();
    return label.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  void finish_sample() {
    if (stem_.empty()) return;
    if (!image_) fail(stem_, "the sample has no image" + (names_.image ? ", no ." + *names_.image : std::string()));
    if (!label_) {
      const std::string ending = has_json_labels() ? "json" : names_.label;
      fail(image_->name, "the sample has no label, no " + stem_ + "." + ending + " beside it");
    }
    image_->label = *label_;
    samples_.push_back(std::move(*image_));
    image_.reset();
    label_.reset();
  }

  std::string path_;
  TarReader tar_;
  const ShardNames& names_;
  PassedOver& passed_over_;
  std::string stem_;  // of the sample that is being read
  std::optional<ShardSample> image_;
  std::optional<int64_t> label_;
  std::vector<ShardSample> samples_;
};

}  // namespace

std::vector<ShardSample> read_shard(std::unique_ptr<TarSource> shard, const ShardNames& names,
                                    PassedOver* passed_over) {
  PassedOver unwanted;
  return ShardReader(std::move(shard), names, passed_over ? *passed_over : unwanted).read();
}

}  // namespace trainrun
