#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "registry/image_data/image_listing.h"

namespace trainrun {

/// The classes of training data, by whose numbers other data are read.
struct KnownClasses {
  std::vector<std::string> names;  // in the order of their numbers; empty: classes are numbers
  int64_t count = 0;

  bool operator==(const KnownClasses&) const = default;
  /// {"classes": [names]}, or {"num_classes": count}; null: there are none.
  nlohmann::json to_json() const;
  /// Null where `json` tells of no classes.
  static KnownClasses from_json(const nlohmann::json& json);
  static KnownClasses of(const ImageListing& listing);
  bool are_known() const { return count > 0; }
};

/// Images of classes that the training data do not have.
struct UnknownClasses {
  std::map<std::string, int64_t> counts;  // images of each
  std::string first_class;
  std::string first_place;  // of the first image of it

  /// "dog (20), cow (3)"
  std::string text() const;
  /// "test/dgo/1.jpg: no image of the training data is of class 'dgo'; did you mean dog? Its classes are ant, dog"
  std::string fault(const KnownClasses& known) const;
};

/// `listing` with the numbers that its classes have in `known`, and without images of other classes, which are counted
/// in `unknown`. Classes that are numbers in one of the two and names in the other are found by that name; numbers that
/// no class has as its name stand for classes by their order where the listing's `labels_are_indices` says so.
ImageListing read_by_classes(const KnownClasses& known, const ImageListing& listing, UnknownClasses& unknown);

/// The images `numbers` of a listing.
ImageListing chosen_of(const ImageListing& listing, const std::vector<int64_t>& numbers);

}  // namespace trainrun
