#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "registry/kinds/dataset.h"

namespace trainrun {

struct ImageOptions;

/// The samples of an epoch in the order in which they are to be drawn, [size()] int64: each once; or, of data that say
/// how many they draw (`num_drawn_of`), so many, of which some may come again.
using OwnOrder = std::function<at::Tensor(uint64_t seed, int64_t epoch)>;

/// What only some data sets can tell of their samples. Ask by the functions below, which serve any data set.
class DetailedDataset {
 public:
  virtual ~DetailedDataset() = default;
  virtual at::Tensor held(const std::string& field) const;
  virtual std::string place(int64_t index, const std::string& field) const;
  virtual std::vector<std::string> names_within(const std::string& field) const;
  virtual nlohmann::json inferred() const;
  virtual void set_inferred(const nlohmann::json& inferred);
  virtual std::vector<std::string> notes() const;
  virtual std::vector<std::string> texts(const std::string& column) const;
  virtual std::vector<std::string> class_names(const std::string& field) const;
  virtual OwnOrder own_order() const;
  virtual bool draws_itself() const;
  virtual std::optional<int64_t> num_drawn() const;
  virtual std::optional<int64_t> padding(const std::string& field) const;
  virtual const ImageOptions* image_options() const;
  virtual std::string stored(int64_t index) const;
  virtual std::string disorder(const std::optional<std::string>& group) const;
  virtual std::vector<int64_t> series_starts() const;
  virtual std::string renumbering(const std::string& field) const;
};

/// Whether float32 holds these numbers (float64) without rounding one. Where it does not, `get` gives float64 for what
/// `info` calls float32, so that transforms may still scale it; what they leave so is rounded last.
bool fits_float32(const at::Tensor& numbers);
/// One field of all samples ([size(), …]) where it lies in memory as `get` gives it; undefined where it does not.
at::Tensor held_field(const Dataset& data, const std::string& field);
/// Where a field of sample `index` was read: "people.csv:17:city", the file, the row (the line of a text file, the
/// number of a database's row, the index in an array) and the column; "sample 17:city" where there is no file to name.
std::string place_of_sample(const Dataset& data, int64_t index, const std::string& field);
/// The names of a field's numbers along its last dimension: the columns of a table. Empty: they have none.
std::vector<std::string> names_within_field(const Dataset& data, const std::string& field);
/// What a user should know of the data, once they are open: a sentence each.
std::vector<std::string> notes_of(const Dataset& data);
/// What the file has for each sample in a column, be it a field or not. Empty: there is no such file. Throws DataError
/// where it has no such column.
std::vector<std::string> texts_of(const Dataset& data, const std::string& column);
/// The names of a field's classes, by their numbers. Empty: they have none, or none that is known yet.
std::vector<std::string> class_names_of(const Dataset& data, const std::string& field);
/// How samples are drawn that lie in a stream, not each at any place. Empty: a random permutation of all will do.
OwnOrder own_order_of(const Dataset& data);
/// Whether an epoch of training draws, by `own_order_of`, another number of samples than there are, or some of them
/// several times. Other data sets cannot take parts of such data.
bool draws_itself(const Dataset& data);
/// How many it then draws. Known before `open` where the numbers of samples are.
std::optional<int64_t> num_drawn_of(const Dataset& data);
/// Throws DataError where `data`, which are within another data set `outer`, draw their samples themselves.
void require_all_drawn(const Dataset& data, const std::string& outer);
/// With what a field of samples is filled up that are shorter than the batch's longest; empty: all have one size.
std::optional<int64_t> padding_of(const Dataset& data, const std::string& field);
/// How image files are read; null: the data are not image files.
const ImageOptions* image_options_of(const Dataset& data);
/// The bytes of the file that sample `index` is, before it is decoded and changed; empty: it is not a file of its own.
std::string stored_sample(const Dataset& data, int64_t index);
/// Why samples that follow each other do not do so in the data's own order, in which they are a series in time, and what
/// to write instead; "" where they do. Known before `open`. Where samples are brought together by the column `group`,
/// only those of equal values have to.
std::string disorder_of(const Dataset& data, const std::optional<std::string>& group);
/// The numbers of the samples with which another series begins, as another of several files; the first sample's is left
/// out. Ascending.
std::vector<int64_t> series_starts_of(const Dataset& data);
/// What a recipe says of the data set so that the classes of a field are numbered from 0, whatever they are in its file:
/// "columns: {species: category}"; "": it cannot say it.
std::string renumbering_of(const Dataset& data, const std::string& field);
/// What files alone told of how they are to be read: columns (`columns: auto`), or the classes of images, as
/// {"classes": [names]} or {"num_classes": count}; null: nothing had to be inferred. Needs no `open`.
nlohmann::json inferred_of(const Dataset& data);
/// Has data that would infer be read as other data, whose `inferred_of` is given; before `info` and `open`. `inferred_of`
/// then gives that back, as it does of all data that the same component builds. Null, or data that does not infer:
/// nothing is done.
void read_as_inferred(Dataset& data, const nlohmann::json& inferred);

}  // namespace trainrun
