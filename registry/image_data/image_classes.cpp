#include "registry/image_data/image_classes.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <unordered_map>

#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "registry/language/text_number.h"

namespace trainrun {
namespace {

using nlohmann::json;

constexpr size_t kMostClassesNamed = 10;

/// A number as a program writes it: "7", not "07".
std::optional<int64_t> plain_number(const std::string& text) {
  const auto number = number_of<int64_t>(text);
  return number && std::to_string(*number) == text ? number : std::nullopt;
}

/// The number in `known` of each class that `listing` has by its own number; -1: unknown.
class ClassNumbers {
 public:
  ClassNumbers(const KnownClasses& known, const ImageListing& listing) : known_(known), listing_(listing) {
    for (size_t i = 0; i < known.names.size(); ++i) by_name_.emplace(known.names[i], static_cast<int64_t>(i));
  }

  int64_t of(int64_t label) const {
    const std::string name = name_of(label);
    if (!known_.names.empty()) {
      if (const auto found = by_name_.find(name); found != by_name_.end()) return found->second;
      return listing_.labels_are_indices && no_name_is_a_number() && label < known_.count ? label : -1;
    }
    const auto number = plain_number(name);
    return number && *number >= 0 && *number < known_.count ? *number : -1;
  }
  std::string name_of(int64_t label) const {
    return listing_.classes.empty() ? std::to_string(label) : listing_.classes.at(static_cast<size_t>(label));
  }

 private:
  bool no_name_is_a_number() const { return std::none_of(known_.names.begin(), known_.names.end(), plain_number); }

  const KnownClasses& known_;
  const ImageListing& listing_;
  std::unordered_map<std::string, int64_t> by_name_;
};

}  // namespace

json KnownClasses::to_json() const {
  if (!are_known()) return nullptr;
  return names.empty() ? json{{"num_classes", count}} : json{{"classes", names}};
}

KnownClasses KnownClasses::from_json(const json& json) {
  KnownClasses known;
  if (!json.is_object()) return known;
  if (json.contains("classes") && json["classes"].is_array()) {
    known.names = json["classes"].get<std::vector<std::string>>();
    known.count = static_cast<int64_t>(known.names.size());
  } else if (json.contains("num_classes") && json["num_classes"].is_number_integer()) {
    known.count = json["num_classes"].get<int64_t>();
  }
  return known;
}

KnownClasses KnownClasses::of(const ImageListing& listing) {
  return {listing.classes, listing.num_classes.value_or(0)};
}

std::string UnknownClasses::text() const {
  std::vector<std::string> parts;
  for (const auto& [name, count] : counts) {
    parts.push_back(name + " (" + std::to_string(count) + ")");
  }
  return join_first(parts, kMostClassesNamed);
}

std::string UnknownClasses::fault(const KnownClasses& known) const {
  const std::string near = known.names.empty() ? "" : nearest(first_class, known.names);
  std::string text = first_place + ": no image of the training data is of class '" + first_class + "'" +
                     (near.empty() ? "; their classes are " : "; did you mean " + near + "? Their classes are ");
  if (known.names.empty()) return text + "the numbers 0 to " + std::to_string(known.count - 1);
  return text + join_first(known.names, kMostClassesNamed, LeftOut::kCount);
}

ImageListing read_by_classes(const KnownClasses& known, const ImageListing& listing, UnknownClasses& unknown) {
  const ClassNumbers numbers(known, listing);
  const int64_t* own = listing.labels.const_data_ptr<int64_t>();
  std::unordered_map<int64_t, int64_t> found;
  std::vector<int64_t> labels;
  std::vector<int64_t> left;
  for (int64_t i = 0; i < listing.labels.numel(); ++i) {
    auto number = found.find(own[i]);
    if (number == found.end()) number = found.emplace(own[i], numbers.of(own[i])).first;
    if (number->second >= 0) {
      labels.push_back(number->second);
      left.push_back(i);
      continue;
    }
    const std::string name = numbers.name_of(own[i]);
    if (unknown.counts.empty()) {
      const auto image = static_cast<size_t>(i);
      unknown.first_place = listing.lines.empty() ? listing.files[image] : listing.place(image);
      unknown.first_class = name;
    }
    ++unknown.counts[name];
  }
  ImageListing read = unknown.counts.empty() ? listing : chosen_of(listing, left);
  read.labels = at::tensor(labels, at::kLong);
  read.num_classes = known.count;
  read.classes = known.names;
  return read;
}

ImageListing chosen_of(const ImageListing& listing, const std::vector<int64_t>& numbers) {
  ImageListing chosen = listing;
  const auto choose = [&](auto& of_images) {
    if (of_images.empty()) return;
    std::decay_t<decltype(of_images)> kept;
    kept.reserve(numbers.size());
    for (const int64_t number : numbers) kept.push_back(of_images[static_cast<size_t>(number)]);
    of_images = std::move(kept);
  };
  choose(chosen.files);
  choose(chosen.masks);
  choose(chosen.lines);
  choose(chosen.pieces);
  if (chosen.numbers.empty()) {
    chosen.numbers = numbers;
  } else {
    choose(chosen.numbers);
  }
  if (chosen.labels.defined()) chosen.labels = chosen.labels.index_select(0, at::tensor(numbers, at::kLong));
  return chosen;
}

}  // namespace trainrun
