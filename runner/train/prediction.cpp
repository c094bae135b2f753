#include "runner/train/prediction.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "registry/data/texts/encoded_texts.h"
#include "registry/image_data/image_files.h"
#include "registry/image_data/image_samples.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/kinds/layer_shapes.h"
#include "runner/data/field_names.h"
#include "runner/train/occasion.h"
#include "runner/train/step_errors.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

/// The images of a folder, whatever they show.
class UnlabelledImages : public ImageSamples {
 public:
  UnlabelledImages(ImageOptions options, std::string folder)
      : ImageSamples(std::move(options)), folder_(std::move(folder)) {}

 protected:
  Listing list() const override {
    Listing listing;
    try {
      ImageFiles found = images_below(folder_);
      listing.files = std::move(found.images);
      listing.unread = std::move(found.unread);
      listing.passed_over = found.passed_over.text();
    } catch (const fs::filesystem_error& error) {
      throw DataError(folder_ + " cannot be listed: " + error.code().message());
    }
    if (listing.files.empty() && !listing.unread.empty()) throw DataError(listing.unread[0]);
    if (listing.files.empty()) throw DataError(folder_ + " holds no JPEG, PNG, WebP or BMP file");
    listing.labels = at::zeros({static_cast<int64_t>(listing.files.size())}, at::kLong);  // nobody knows them
    return listing;
  }

 private:
  std::string folder_;
};

/// The data whose images others are read alike.
const Component<DatasetKind>& model_data(const Recipe& recipe) {
  return recipe.dataset.eval ? recipe.dataset.eval->sets[0].data : recipe.dataset.train;
}

/// How the recipe reads images: its `image_transforms`, colours, and what becomes of broken files. Data that are not
/// image files say at least how many channels there are.
ImageOptions image_options(const Dataset& data, const FieldInfo& image) {
  ImageOptions options;
  options.mode = image.shape[0] == 1 ? ColorMode::kGray : ColorMode::kRgb;
  if (const ImageOptions* own = data.facts().image_options) options = *own;
  options.memory = std::make_shared<ImageMemory>();  // these are other files
  options.cache = ImageCache::kNone;
  return options;
}

std::unique_ptr<Dataset> open_folder(const Recipe& recipe, const std::string& folder) {
  const std::unique_ptr<Dataset> like = model_data(recipe).build({});
  like->set_inferred(recipe.dataset.train.build({})->facts().inferred());
  const DatasetInfo info = like->info();
  const FieldInfo& image = info.fields[0];
  const bool fits = image.name == "image" && image.shape.size() == 3 && (image.shape[0] == 1 || image.shape[0] == 3);
  if (!fits) {
    throw Error("predict: the model reads '" + image.name + "', " + shape_text(image.shape) +
                ", not images of one channel or three; leave the folder out to predict for dataset.eval");
  }
  auto data = std::make_unique<UnlabelledImages>(image_options(*like, image), folder);
  data->open();
  const FieldInfo found = data->info().fields[0];
  if (found.shape == image.shape) return data;
  throw Error("predict: an image of " + folder + " comes as " + shape_text(found.shape) + ", the model reads " +
              shape_text(image.shape) + "; resize the images by dataset.eval.image_transforms");
}

/// The texts of a file, encoded as the model's own are.
std::unique_ptr<Dataset> open_texts(const Recipe& recipe, const std::string& path, const nlohmann::json& learnt) {
  const std::unique_ptr<Dataset> like = model_data(recipe).build({});
  const auto* own = dynamic_cast<const EncodedTexts*>(like.get());
  if (!own) {
    throw Error("predict: " + path + " is a file, but the model's data are not a file of texts (" +
                model_data(recipe).type + "); name a folder of images, or leave it out to predict for dataset.eval");
  }
  std::unique_ptr<EncodedTexts> data = own->unlabelled(path);
  data->open();
  if (!learnt.is_null()) data->set_learnt(learnt);
  return data;
}

/// What is predicted for: dataset.eval, a folder's images, or a file's texts.
std::unique_ptr<Dataset> open_predicted(TrainedRun& run, const std::optional<std::string>& path) {
  const Recipe& recipe = run.recipe();
  if (path && fs::is_regular_file(*path)) return open_texts(recipe, *path, run.learnt("dataset"));
  if (path && !fs::exists(*path)) throw Error("predict: " + *path + " is not there");
  if (path) return open_folder(recipe, *path);
  if (!recipe.dataset.eval) {
    throw Error("predict: the recipe has no dataset.eval; name a folder of images or a file of texts");
  }
  return open_evaluated(run);
}

/// How messages and files call a sample.
std::string name_of_sample(const Dataset& data, const std::optional<std::string>& path, int64_t sample) {
  if (!path) return std::to_string(sample);
  if (const auto* texts = dynamic_cast<const EncodedTexts*>(&data)) return std::to_string(texts->line(sample));
  return data.facts().place(sample, "image");
}

/// `of_logits` makes probabilities of logits.
at::Tensor as_probabilities(LossFacts::Scores kind, const at::Tensor& scores, const auto& of_logits) {
  if (kind == LossFacts::Scores::kLogits) return of_logits(scores);
  return kind == LossFacts::Scores::kLogProbabilities ? at::exp(scores) : scores;
}

/// From the outputs [N, C] to probabilities [N, C], as the recipe's loss reads them; of one output [N, 1] or [N], which
/// says how probable class 1 is, come two.
at::Tensor probabilities_of(const Recipe& recipe, const at::Tensor& outputs) {
  using Scores = LossFacts::Scores;
  const LossFacts facts = recipe.loss[0].facts({});
  const at::Tensor scores = outputs.to(at::kDouble);
  const bool is_one = scores.dim() == 1 || (scores.dim() == 2 && scores.size(1) == 1);
  if (is_one && facts.of_one != Scores::kNone) {
    const at::Tensor one = as_probabilities(facts.of_one, scores, [](const auto& x) { return at::sigmoid(x); });
    return at::cat({1 - one.reshape({-1, 1}), one.reshape({-1, 1})}, 1);
  }
  if (scores.dim() == 2 && facts.of_classes != Scores::kNone) {
    return as_probabilities(facts.of_classes, scores, [](const auto& x) { return at::softmax(x, 1); });
  }
  throw Error("predict is for models that give each sample one class; this one gives " + shape_text(outputs.sizes()) +
              " and is trained by " + recipe.loss[0].type);
}

/// The names that the run has learnt; else, of a data set that has names of its own, those; else numbers.
PredictedClasses classes_of(const TrainedRun& run, const Dataset& data, size_t count) {
  PredictedClasses classes;
  const DatasetInfo info = data.info();
  classes.names = run.class_names(info.target);
  if (classes.names.size() == count) return classes;
  classes.names = data.facts().field(info.target).class_names;
  if (classes.names.size() == count) return classes;
  classes.names.clear();
  for (size_t i = 0; i < count; ++i) classes.names.push_back(std::to_string(i));
  return classes;
}

}  // namespace

std::unique_ptr<Dataset> open_evaluated(TrainedRun& run) {
  const Recipe& recipe = run.recipe();
  auto data = open_data(model_data(recipe), recipe);
  share_learnt(*data, run.learnt("dataset"));
  require_same_names(run.learnt(), *data, "dataset.eval");
  return data;
}

void for_each_output(TrainedRun& run, const Dataset& data,
                     const std::function<void(const at::Tensor& output, int64_t size)>& take) {
  const Recipe& recipe = run.recipe();
  DataTransforms transforms(recipe, nullptr, {data.info()});
  transforms.set_learnt(run.learnt("transforms"));
  const DataLoader loader(data, transforms.evaluation(), loader_options(recipe, &data, false), run.device());
  const EvaluationScope scope(run.callbacks());
  const at::NoGradGuard no_gradients;
  run.model().train(false);
  const auto batches = loader.iterate(0);
  for (Occasion occasion{Occasion::Phase::kEvaluation, 0, 0, 0};; ++occasion.batch) {
    const auto batch = named("making a batch", occasion, [&] { return batches->next(); });
    if (!batch) return;
    const Tensors outputs = named("the prediction", occasion, [&] {
      return scope.predict(*batch, [&](const Batch& given) { return run.model().forward(given); });
    });
    take(outputs.at(0), batch->size());
  }
}

void predict(TrainedRun& run, const std::optional<std::string>& path,
             const std::function<void(const PredictedClasses&)>& begin,
             const std::function<void(const Prediction&)>& take) {
  const auto data = open_predicted(run, path);
  run.add_notes(notes_of_all({{path.value_or("dataset.eval"), data.get()}}));
  int64_t sample = 0;
  for_each_output(run, *data, [&](const at::Tensor& output, int64_t /*size*/) {
    const at::Tensor all = probabilities_of(run.recipe(), output).cpu().contiguous();
    const auto count = static_cast<size_t>(all.size(1));
    if (sample == 0) begin(classes_of(run, *data, count));
    for (int64_t row = 0; row < all.size(0); ++row, ++sample) {
      const double* first = all.const_data_ptr<double>() + row * all.size(1);
      Prediction prediction;
      prediction.sample = name_of_sample(*data, path, sample);
      prediction.probabilities.assign(first, first + count);
      prediction.label = static_cast<size_t>(std::max_element(first, first + count) - first);
      take(prediction);
    }
  });
}

}  // namespace trainrun
