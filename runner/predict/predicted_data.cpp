#include "runner/predict/predicted_data.h"

#include <ATen/ops/arange.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <set>

#include "registry/data/one_piece.h"
#include "registry/formats/files/descriptor.h"
#include "registry/image_data/image_samples.h"
#include "registry/kinds/build.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/error.h"
#include "runner/data/data.h"
#include "runner/data/data_part.h"
#include "runner/data/encoding_notes.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kStandardInput = "standard input";

/// A text that names the file `path`, which holds what came from standard input and is not the user's.
std::string without_path(std::string text, const std::string& path) {
  for (size_t at = text.find(path); at != std::string::npos; at = text.find(path)) {
    text.replace(at, path.size(), kStandardInput);
  }
  return text;
}

/// Data that hold a file for as long as they are read.
class FromStandardInput : public UnlabelledData {
 public:
  FromStandardInput(std::string path, std::unique_ptr<UnlabelledData> data)
      : path_(std::move(path)), data_(std::move(data)) {}
  ~FromStandardInput() override {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  std::optional<Piece> next() override {
    std::optional<Piece> piece;
    try {
      piece = data_->next();
    } catch (const DataError& error) {
      throw DataError(without_path(error.what(), path_));
    }
    if (!piece) return piece;
    for (ValueColumn& column : piece->beside) {  // such as "file"
      auto* texts = std::get_if<std::vector<std::string>>(&column.values);
      if (texts) std::replace(texts->begin(), texts->end(), path_, std::string("-"));
    }
    return piece;
  }
  std::optional<int64_t> size() const override { return data_->size(); }
  std::vector<std::string> notes() const override {
    std::vector<std::string> notes = data_->notes();
    for (std::string& note : notes) note = without_path(std::move(note), path_);
    return notes;
  }

 private:
  std::string path_;
  std::unique_ptr<UnlabelledData> data_;
};

/// Data of which more is to be said than they know themselves.
class WithNotes : public UnlabelledData {
 public:
  WithNotes(std::vector<std::string> notes, std::unique_ptr<UnlabelledData> data)
      : notes_(std::move(notes)), data_(std::move(data)) {}
  std::optional<Piece> next() override { return data_->next(); }
  std::optional<int64_t> size() const override { return data_->size(); }
  std::vector<std::string> notes() const override {
    std::vector<std::string> notes = notes_;
    for (std::string& note : data_->notes()) notes.push_back(std::move(note));
    return notes;
  }

 private:
  std::vector<std::string> notes_;
  std::unique_ptr<UnlabelledData> data_;
};

/// Copies standard input to a file, since what it holds is looked at before it is read.
std::string kept_input() {
  std::string path = (fs::temp_directory_path() / "trainrun-standard-input-XXXXXX").string();
  const int made = ::mkstemp(path.data());
  if (made < 0) throw FileError(path, "create", errno);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(::fdopen(made, "wb"), &std::fclose);
  std::array<char, 1 << 16> buffer{};
  uint64_t all = 0;
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), stdin)) {
    if (std::fwrite(buffer.data(), 1, count, file.get()) != count) throw FileError(path, "write", errno);
    all += count;
  }
  if (std::fflush(file.get()) != 0) throw FileError(path, "write", errno);
  if (all == 0) {
    fs::remove(path);
    throw DataError("standard input is empty");
  }
  return path;
}

/// What reads other data as the training data were: these, or, of images, the evaluation data, whose image_transforms
/// draw nothing.
const Component<DatasetKind>& model_data(const Recipe& recipe) {
  if (!recipe.dataset.eval) return recipe.dataset.train;
  const Component<DatasetKind>& eval = recipe.dataset.eval->sets[0].data;
  return eval.build({})->facts().image_options ? eval : recipe.dataset.train;
}

/// Data that are no image files, but images: files of images are read by their number of channels.
std::optional<ImageOptions> options_of_images(const DatasetInfo& info) {
  const FieldInfo& image = info.fields.at(0);
  const bool fits = image.name == "image" && image.shape.size() == 3 && (image.shape[0] == 1 || image.shape[0] == 3);
  if (!fits) return std::nullopt;
  ImageOptions options;
  options.mode = image.shape[0] == 1 ? ColorMode::kGray : ColorMode::kRgb;
  return options;
}

/// Whether the model goes on with texts, by what it learns.
bool generates_text(const Recipe& recipe) {
  static const std::set<std::string> losses = {"CausalLMLoss", "DPOLoss", "ORPOLoss", "SimPOLoss", "KTOLoss"};
  return losses.contains(recipe.loss[0].type);
}

std::unique_ptr<UnlabelledData> open_files(TrainedRun& run, UnlabelledSource source) {
  if (generates_text(run.recipe())) {
    throw Error(
        "predict: a language model has no predictions for data, but goes on with texts: trainrun generate RUN "
        "--prompts FILE");
  }
  const DataContract& contract = run.contract();
  source.info = contract.info();
  source.columns = contract.columns();
  source.learnt = contract.dataset;
  for (const std::string& path : source.paths) {
    if (!fs::exists(path)) throw Error("predict: " + path + " is not there");
  }
  const Component<DatasetKind>& component = model_data(run.recipe());
  const std::unique_ptr<Dataset> like = build_at_place(component, {});
  like->set_inferred(contract.inferred);
  const auto unlabelled = like->facts().unlabelled;
  if (unlabelled) {
    return std::make_unique<WithNotes>(encoding_notes(component.written, source.paths), unlabelled(source));
  }
  if (const auto options = options_of_images(source.info)) return read_unlabelled_images(source, *options);
  throw Error("predict: " + component.type +
              " data cannot be read without labels; leave DATA out to predict for dataset.eval, or name other data of "
              "its kind there, as in dataset.eval.path=FILE");
}

/// What samples are called by: their numbers, and the columns of the file that identify them.
std::vector<ValueColumn> numbers_and_ids(const Dataset& data) {
  std::vector<ValueColumn> beside = {{"sample", at::arange(data.size(), at::kLong)}};
  const DatasetFacts facts = data.facts();
  for (const std::string& id : facts.ids) {
    std::vector<std::string> texts = facts.texts(id);
    if (texts.empty()) continue;
    if (id == beside[0].name) beside.clear();  // the file's own number says more
    beside.push_back({id, std::move(texts)});
  }
  return beside;
}

std::unique_ptr<UnlabelledData> open_evaluated(TrainedRun& run, int64_t begin, bool are_others) {
  const Recipe& recipe = run.recipe();
  if (!recipe.dataset.eval) {
    throw Error("predict: the recipe has no dataset.eval; name the data to predict for: a file, a folder of images, -");
  }
  auto data = open_data(recipe.dataset.eval->sets[0].data, recipe);
  run.contract().read(*data, "dataset.eval");
  auto beside = numbers_and_ids(*data);
  auto samples = one_piece(std::move(data), std::move(beside), begin);
  const std::string taker = what_takes_a_part(recipe.dataset.eval->sets[0].data);
  if (!are_others || taker.empty()) return samples;
  std::vector<std::string> notes = {"the predictions are for the part of the data that " + taker +
                                    " takes, numbered from 0; for all of them add '" + taker + "=!remove'"};
  return std::make_unique<WithNotes>(std::move(notes), std::move(samples));
}

}  // namespace

std::unique_ptr<UnlabelledData> open_predicted(TrainedRun& run, const PredictedSource& source) {
  if (source.paths.empty()) return open_evaluated(run, source.begin, source.are_others);
  UnlabelledSource files;
  files.paths = source.paths;
  files.begin = source.begin;
  files.broken = source.broken;
  const auto input = std::find(files.paths.begin(), files.paths.end(), "-");
  if (input == files.paths.end()) return open_files(run, std::move(files));
  std::string kept = kept_input();
  *input = kept;
  if (source.broken) {
    files.broken = [kept, broken = source.broken](const std::string& fault) { broken(without_path(fault, kept)); };
  }
  try {
    return std::make_unique<FromStandardInput>(kept, open_files(run, std::move(files)));
  } catch (const DataError& error) {
    fs::remove(kept);
    throw DataError(without_path(error.what(), kept));
  } catch (...) {
    fs::remove(kept);
    throw;
  }
}

json identity_of(const std::vector<std::string>& paths) {
  json list = json::array();
  for (const std::string& path : paths) {
    std::error_code unreadable;
    json one = {{"path", path}};
    const auto time = fs::last_write_time(path, unreadable);
    if (!unreadable) one["time"] = time.time_since_epoch().count();
    if (const auto bytes = fs::file_size(path, unreadable); !unreadable) one["bytes"] = bytes;
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace trainrun
