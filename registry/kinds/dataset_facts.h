#pragma once

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trainrun {

struct ImageOptions;
class UnlabelledData;
struct UnlabelledSource;

/// What a field means, which is alike for all samples.
struct FieldFacts {
  /// The names of its classes, by their numbers. Empty: they have none, or none that is known yet.
  std::vector<std::string> class_names;
  /// The names of its numbers along its last dimension: the columns of a table. Empty: they have none.
  std::vector<std::string> names_within;
  /// The same where several numbers are one column: `color=red`, of the number that is 1 where color is red. Empty: no
  /// column is several numbers.
  std::vector<std::string> one_hot_names;
  /// What the file calls it, where that is not the field's name: the column `price` of a table, whose field is `label`.
  std::string called;
  /// The colours in which its files show the classes, red, green and blue of each; empty: they have none.
  std::vector<uint8_t> palette;
  /// With what the field is filled up of samples that are shorter than the batch's longest; null: all have one size.
  std::optional<int64_t> padding;
  /// What a recipe says of the data set so that the field's classes are numbered from 0, whatever they are in its file:
  /// "columns: {species: category}"; "": it cannot say it.
  std::string renumbering;

  /// What a user calls its numbers along its last dimension. Empty: they have no names.
  const std::vector<std::string>& number_names() const { return one_hot_names.empty() ? names_within : one_hot_names; }
};

/// The samples of an epoch in the order in which they are to be drawn, [size()] int64: each once; or, of data that draw
/// their samples themselves, as many as `num_drawn` says, of which some may come again.
using OwnOrder = std::function<at::Tensor(uint64_t seed, int64_t epoch)>;

/// What a data set declares besides its samples; by default nothing. A data set that wraps another
/// returns the other's facts, changed where it must. What may read files, or is known only once the data are open, is a
/// function, to be called as long as the data set lives.
struct DatasetFacts {
  /// A place in the data's own order where a sample is left out (`broken: skip`).
  struct Hole {
    int64_t before = 0;               // this sample it would be, or one of several
    std::optional<std::string> text;  // of it in a column; null: it cannot be read
  };

  // --- of fields

  std::function<FieldFacts(const std::string& field)> field = [](const std::string&) { return FieldFacts(); };
  /// One field of all samples ([size(), …]) where it lies in memory as `get` gives it; undefined where it does not.
  std::function<at::Tensor(const std::string& field)> held = [](const std::string&) { return at::Tensor(); };

  // --- of samples

  /// Where a field of sample `index` was read: "people.csv:17:city", the file, the row (the line of a text file, the
  /// number of a database's row, the index in an array) and the column; "sample 17:city" where there is no file to
  /// name.
  std::function<std::string(int64_t index, const std::string& field)> place = [](int64_t index, const std::string& of) {
    return "sample " + std::to_string(index) + ":" + of;
  };
  /// The bytes of the file that sample `index` is, before it is decoded and changed; "": it is not a file of its own.
  std::function<std::string(int64_t index)> stored = [](int64_t) { return std::string(); };
  /// What the file has for each sample in a column, be it a field or not. Empty: there is no such file. Throws DataError
  /// where it has no such column.
  std::function<std::vector<std::string>(const std::string& column)> texts = [](const std::string&) {
    return std::vector<std::string>();
  };
  /// The columns that identify a sample, which the model does not read, but which predictions are written beside.
  std::vector<std::string> ids;
  /// The number of tokens of each sample, [size()] int64, where samples are filled up to the longest of a batch;
  /// undefined: they have none. Throws DataError where the recipe must change for it.
  std::function<at::Tensor()> lengths = [] { return at::Tensor(); };

  /// Opens other data of this kind, which need no labels (unlabelled_data.h). Nothing of this data set is opened for it:
  /// its files need not be there. Empty: this kind cannot. Throws DataError.
  std::function<std::unique_ptr<UnlabelledData>(const UnlabelledSource& source)> unlabelled;

  // --- of their order

  /// How samples are drawn that lie in a stream, not each at any place. Empty: a random permutation of all will do.
  OwnOrder own_order;
  /// Whether an epoch of training draws, by `own_order`, another number of samples than there are, or some of them
  /// several times. Other data sets cannot take parts of such data.
  bool draws_itself = false;
  /// How many it then draws. Known before `open` where the numbers of samples are.
  std::function<std::optional<int64_t>()> num_drawn = [] { return std::optional<int64_t>(); };
  /// Why samples that follow each other do not do so in the data's own order, in which they are a series in time, and
  /// what to write instead; "" where they do. Known before `open`. Where samples are brought together by the column
  /// `group`, only those of equal values have to.
  std::function<std::string(const std::optional<std::string>& group)> disorder = [](const std::optional<std::string>&) {
    return std::string();
  };
  /// The numbers of the samples with which another series begins, as another of several files; the first sample's is
  /// left out. Ascending.
  std::function<std::vector<int64_t>()> series_starts = [] { return std::vector<int64_t>(); };
  /// The samples that are left out, in their order, and what a column has for each, as `texts` has it of the others. Once
  /// the data are open.
  std::function<std::vector<Hole>(const std::string& column)> holes = [](const std::string&) {
    return std::vector<Hole>();
  };

  // --- of the whole

  /// How image files are read; null: the data are not image files.
  const ImageOptions* image_options = nullptr;
  /// What a user should know of the data, once they are open: a sentence each.
  std::function<std::vector<std::string>()> notes = [] { return std::vector<std::string>(); };
  /// What files alone told of how they are to be read: columns (`columns: auto`), or the classes of images, as
  /// {"classes": [names]} or {"num_classes": count}; null: nothing had to be inferred. Needs no `open`.
  std::function<nlohmann::json()> inferred = [] { return nlohmann::json(); };

  /// The facts of the samples `indices` ([n] int64; undefined as long as they are not known) of this data set, as a data
  /// set of their own, which draws none itself.
  DatasetFacts of_samples(const at::Tensor& indices) const;
};

}  // namespace trainrun
