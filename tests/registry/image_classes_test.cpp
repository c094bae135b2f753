#include "registry/image_data/image_classes.h"

#include <ATen/ops/tensor.h>

#include "registry/image_data/image_files.h"
#include "tests/doctest.h"

using namespace trainrun;

namespace {

ImageListing listing_of(const std::vector<int64_t>& labels, const std::vector<std::string>& classes, int64_t count) {
  ImageListing listing;
  for (size_t i = 0; i < labels.size(); ++i) listing.files.push_back(std::to_string(i) + ".png");
  listing.labels = at::tensor(labels, at::kLong);
  listing.classes = classes;
  listing.num_classes = count;
  return listing;
}

std::vector<int64_t> labels_of(const ImageListing& listing) {
  const int64_t* first = listing.labels.const_data_ptr<int64_t>();
  return {first, first + listing.labels.numel()};
}

}  // namespace

TEST_CASE("classes are found by their names in the training data, and others are left out and counted") {
  const KnownClasses known{{"ant", "bee", "cat"}, 3};
  UnknownClasses unknown;
  const ImageListing read = read_by_classes(known, listing_of({0, 1, 2, 1}, {"bee", "cat", "dog"}, 3), unknown);
  CHECK(labels_of(read) == std::vector<int64_t>{1, 2, 2});
  CHECK(read.files == std::vector<std::string>{"0.png", "1.png", "3.png"});
  CHECK(read.numbers == std::vector<int64_t>{0, 1, 3});
  CHECK(read.classes == known.names);
  CHECK(unknown.text() == "dog (1)");
  CHECK(unknown.fault(known) ==
        "2.png: no image of the training data is of class 'dog'; their classes are ant, bee, cat");
  CHECK(chosen_of(read, {2}).numbers == std::vector<int64_t>{3});
}

TEST_CASE("numbers are names where classes are called by numbers, and numbers of shards are those of the training") {
  const KnownClasses names{{"0", "1", "10", "2"}, 4};
  UnknownClasses unknown;
  CHECK(labels_of(read_by_classes(names, listing_of({2, 10}, {}, 11), unknown)) == std::vector<int64_t>{3, 2});
  const KnownClasses numbers{{}, 3};
  CHECK(labels_of(read_by_classes(numbers, listing_of({1, 0}, {"0", "2"}, 2), unknown)) == std::vector<int64_t>{2, 0});
  CHECK(unknown.counts.empty());
  CHECK(read_by_classes(numbers, listing_of({0, 3}, {}, 4), unknown).num_classes == 3);
  CHECK(unknown.fault(numbers) ==
        "1.png: no image of the training data is of class '3'; their classes are the numbers 0 to 2");
  ImageListing shards = listing_of({2, 1}, {}, 3);
  UnknownClasses none;
  shards.labels_are_indices = true;
  CHECK(labels_of(read_by_classes({{"ant", "bee", "cat"}, 3}, shards, none)) == std::vector<int64_t>{2, 1});
  CHECK(none.counts.empty());
  CHECK(read_by_classes({{"ant", "bee", "07"}, 3}, listing_of({7}, {}, 8), none).files.empty());
  CHECK(none.counts.at("7") == 1);
}

TEST_CASE("known classes are saved and read back") {
  const KnownClasses names{{"ant", "bee"}, 2};
  CHECK(KnownClasses::from_json(names.to_json()) == names);
  const KnownClasses numbers{{}, 5};
  CHECK(KnownClasses::from_json(numbers.to_json()) == numbers);
  CHECK(KnownClasses().to_json().is_null());
  CHECK_FALSE(KnownClasses::from_json(nullptr).are_known());
  CHECK_FALSE(KnownClasses::from_json({{"columns", 3}}).are_known());
}

TEST_CASE("what is skipped is counted by kinds, with the first names") {
  PassedOver passed_over;
  CHECK(passed_over.text().empty());
  for (const char* name : {"a/.git", "b/.x", "c/.git", "@eaDir", "__MACOSX"}) {
    CHECK(is_hidden_name(std::filesystem::path(name).filename().string()));
    passed_over.add(PassedOver::kHidden, name);
  }
  passed_over.add(PassedOver::kNoImage, "d/notes.txt");
  CHECK(passed_over.text() ==
        "skipped: 5 hidden files or folders (.git, .x, @eaDir, …), 1 file that is not an image (notes.txt)");
}
