#include "runner/init/image_draft.h"

#include <algorithm>
#include <filesystem>

#include "registry/formats/web/torchvision_weights.h"
#include "registry/image_data/image_files.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "runner/base/text.h"
#include "runner/device/threads.h"
#include "runner/init/image_sight.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSmall = 64;  // pixels: pictures of this side or less are learnt by a net made for small ones
constexpr double kTrainedImages = 0.8;

/// What a recipe for pictures consists of, whatever says their classes.
struct ImagePlan {
  std::string subject;                // for the first line: "the 10 classes of photos"
  std::string train_data, eval_data;  // data sets in flow style, but for image_transforms: "type: ImageFolder, root: a"
  bool is_split = false;              // both are parts of one
  bool stratifies = false;
  std::map<std::string, int64_t> counts;  // empty: a number is predicted
  int64_t outputs = 1;
  int64_t images = 0;  // to learn from
  ImageSight sight;
  std::string weights;  // "": they begin at random
};

bool is_small(const ImagePlan& plan) { return std::min(plan.sight.height, plan.sight.width) <= kSmall; }

int64_t side_of(const ImagePlan& plan) {
  constexpr int64_t kMiddle = 128, kLarge = 224, kLeastLarge = 160;
  const int64_t side = std::min(plan.sight.height, plan.sight.width);
  return is_small(plan) ? side : side < kLeastLarge ? kMiddle : kLarge;
}

std::string text_of(const std::vector<double>& numbers) {
  std::string text;
  for (const double number : numbers) text += (text.empty() ? "" : ", ") + in_figures(number, 3);
  return "[" + text + "]";
}

std::string model_text(const ImagePlan& plan) {
  if (is_small(plan)) {
    return "model:\n" +
           picture_layers(side_of(plan), plan.outputs, plan.counts.empty() ? "" : "a logit for each class");
  }
  std::string text = "model:\n  layers: [{type: ResNet18, num_classes: " + std::to_string(plan.outputs) + "}]\n";
  if (plan.weights.empty()) return text;
  return text + commented("  weights: {path: " + recipe_word(plan.weights) + ", strict: false}",
                          "all but the last layer, which is for other classes");
}

/// How each picture is changed before it is in a batch: while training, and otherwise.
std::pair<std::string, std::string> transforms_of(const ImagePlan& plan) {
  const std::string side = std::to_string(side_of(plan));
  if (is_small(plan)) {
    const bool fits = plan.sight.is_one_size && plan.sight.height == plan.sight.width;
    const std::string resized = fits ? "" : "image_transforms: [{type: Resize, size: [" + side + ", " + side + "]}]";
    return {resized, resized};
  }
  return {"image_transforms: [{type: RandomResizedCrop, size: " + side + ", scale: [0.5, 1]}, RandomHorizontalFlip]",
          "image_transforms: [{type: Resize, size: " + std::to_string(side_of(plan) * 8 / 7) +
              "}, {type: CenterCrop, size: " + side + "}]"};
}

std::string set_text(const ImagePlan& plan, const std::string& data, const std::string& transforms,
                     const std::string& part) {
  std::vector<std::string> words = {data};
  if (plan.sight.is_gray && is_small(plan)) words.emplace_back("mode: L");
  if (plan.sight.broken > 0) words.emplace_back("broken: skip");
  if (!transforms.empty()) words.push_back(transforms);
  if (!plan.is_split) return "{" + join(words) + "}\n";
  return "{type: Split, part: " + part + (plan.stratifies ? ", stratify: true" : "") + ",\n    dataset: {" +
         join(words) + "}}\n";
}

std::string data_text(const ImagePlan& plan) {
  const auto [training, other] = transforms_of(plan);
  std::string text = "dataset:\n  train: " + set_text(plan, plan.train_data, training, "train");
  text += "  eval: " + set_text(plan, plan.eval_data, other, "validation");
  if (is_small(plan)) {
    const int64_t side = side_of(plan);
    const std::string crop = "{type: RandomCrop, size: " + std::to_string(side) +
                             ", padding: " + std::to_string(std::max<int64_t>(1, side / 8)) + "}";
    text += plan.sight.is_gray ? commented("  train_transforms: [" + crop + "]",
                                           "moved a little; gray pictures may be letters, and are not mirrored")
                               : commented("  train_transforms: [" + crop + ", RandomHorizontalFlip]",
                                           "mirrored ones mean the same; if not, leave that out");
  }
  const bool is_known = !is_small(plan) && !plan.weights.empty();
  const std::string mean = is_known ? "[0.485, 0.456, 0.406]" : text_of(plan.sight.mean);
  const std::string deviation = is_known ? "[0.229, 0.224, 0.225]" : text_of(plan.sight.deviation);
  return text + commented("  transforms: [{type: Normalize, mean: " + mean + ", std: " + deviation + "}]",
                          is_known ? "as the weights were trained" : "of these pictures");
}

std::string training_text(const ImagePlan& plan, int64_t batch_size) {
  const bool is_tuned = !is_small(plan) && !plan.weights.empty();
  const Length length =
      is_tuned ? length_for(plan.images, batch_size, 1500, 5, 20) : length_for(plan.images, batch_size, 4000, 8, 40);
  const bool unbalanced = is_unbalanced(plan.counts);
  const int64_t workers = std::min<int64_t>(4, usable_cpus());
  std::string text = "dataloader: {batch_size: " + std::to_string(batch_size) +
                     ", eval_batch_size: " + std::to_string(2 * batch_size) +
                     ", num_workers: " + std::to_string(workers) + "}\n\n";
  text += commented(
      std::string("optimizer: {type: AdamW, lr: ") + (is_tuned ? "2.0e-4" : "2.0e-3") + ", weight_decay: 0.05}",
      is_tuned ? "low, so that what the weights know is kept" : "");
  text += "scheduler: {type: CosineWithWarmup, warmup_ratio: 0.1}\ntraining: {num_epochs: " +
          std::to_string(length.epochs) + "}\n";
  const std::string monitor = plan.counts.empty() || unbalanced ? "eval/loss" : "eval/accuracy";
  return text + "callbacks:\n" +
         commented("  - {type: EarlyStopping, monitor: " + monitor + ", patience: " + std::to_string(length.patience) +
                       ", restore_best: true}",
                   "ends with the best weights");
}

Draft draft_of(ImagePlan plan, const InitOptions& options) {
  if (!is_small(plan)) {
    const auto published = torchvision_file("torchvision/resnet18");
    if (options.weights) {
      plan.weights = *options.weights;
    } else if (published && fs::exists(published->path())) {
      plan.weights = "torchvision/resnet18";
    }
  }
  const ImageSight& sight = plan.sight;
  Draft draft;
  std::string sizes = sight.is_one_size
                          ? std::to_string(sight.height) + " by " + std::to_string(sight.width) + " pixels"
                          : "sides of " + std::to_string(sight.least_side) + " to " + std::to_string(sight.most_side) +
                                " pixels, the median " + std::to_string(sight.height) + " by " +
                                std::to_string(sight.width);
  draft.seen.push_back("pictures: " + sizes + (sight.is_gray ? ", all gray" : "") + " (of " + grouped(sight.seen) +
                       " that were opened)");
  if (!plan.counts.empty())
    draft.seen.push_back(std::to_string(plan.counts.size()) + " classes: " + counts_text(plan.counts));
  if (!is_small(plan))
    draft.seen.push_back("weights: " + (plan.weights.empty() ? "none, they begin at random" : plan.weights));
  if (sight.broken > 0)
    draft.doubts.push_back(counted(sight.broken, "picture", "pictures") +
                           (sight.broken == 1 ? " cannot be decoded and is left out (broken: skip): "
                                              : " cannot be decoded and are left out (broken: skip), the first: ") +
                           sight.first_broken);
  if (sight.copies > 0)
    draft.doubts.push_back(counted(sight.copies, "file is", "files are") + " like another (of " +
                           grouped(sight.compared) + " compared): where both sets have them, the figures are too good");
  if (!is_small(plan) && plan.weights.empty()) {
    draft.doubts.emplace_back(
        "without pretrained weights, pictures of this size want many thousands to learn from; --weights "
        "torchvision/resnet18 fetches torchvision's (47 MB), trained on ImageNet");
  }
  if (is_small(plan) && options.weights)
    draft.doubts.emplace_back(
        "--weights is not used: pictures of up to 64 pixels are learnt by a small net of their own");
  constexpr int64_t kFew = 200;
  if (plan.images < kFew) {
    draft.doubts.push_back("there are " + std::to_string(plan.images) +
                           " pictures to learn from: figures of so few depend on chance");
  }
  draft.batch_size = is_small(plan) ? power_of_two(static_cast<double>(plan.images) / 50, 16, 128) : 32;
  draft.recipe = [plan, name = options.name](int64_t batch_size) {
    std::string text = heading(plan.subject) + "version: 1\nname: " + recipe_word(name) + "\nseed: 1\n\n";
    text += model_text(plan);
    text += plan.counts.empty() ? "loss: MSELoss\nmetrics: [MAE, R2]\n"
                                : "loss: CrossEntropyLoss\n" + metrics_text(is_unbalanced(plan.counts));
    return text + "\n" + data_text(plan) + training_text(plan, batch_size);
  };
  return draft;
}

int64_t rarest_of(const std::map<std::string, int64_t>& counts) {
  int64_t rarest = counts.empty() ? 0 : counts.begin()->second;
  for (const auto& [name, count] : counts) rarest = std::min(rarest, count);
  return rarest;
}

/// The folders in `folder` that hold images, with their images; empty where there are none.
std::map<std::string, ImageFiles> classes_in(const std::string& folder) {
  std::map<std::string, ImageFiles> classes;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory() || is_hidden_name(name)) continue;
    ImageFiles files = images_below(entry.path());
    if (!files.images.empty()) classes.emplace(name, std::move(files));
  }
  return classes;
}

/// Throws Error where a folder in `folder` is not one of `classes`, since it holds no image: ImageFolder takes each for a
/// class.
void require_images(const std::string& folder, const std::map<std::string, ImageFiles>& classes) {
  std::vector<std::string> empty;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && !is_hidden_name(name) && !classes.contains(name)) empty.push_back(name);
  }
  if (empty.empty()) return;
  std::sort(empty.begin(), empty.end());
  const bool is_one = empty.size() == 1;
  throw Error(folder + ": each folder in it is a class, but " + join_first(empty, 5, LeftOut::kCount) +
              (is_one ? " holds" : " hold") + " no JPEG, PNG, WebP or BMP file; remove " + (is_one ? "it" : "them") +
              ", or put pictures of that kind into " + (is_one ? "it" : "them"));
}

/// Throws Error where ImageCSV cannot read the table.
void require_image_table(const TableSight& table, const std::string& image, const TableTarget& target) {
  const std::string fault = table.path + ": its column " + image + " names images; ";
  if (target.name == image) throw Error(fault + "write --target and the column of their classes");
  if (table.type != "CSV") throw Error(fault + "their table has to be a CSV file");
  if (std::ranges::find(table.settings, "header: false") != table.settings.end()) {
    throw Error(fault +
                "the first line of their table has to name the columns: write one above it, such as image,class");
  }
}

/// A data set of the images that a table names, in flow style, but for the folder at which their paths begin.
std::string image_data_text(const TableSight& table, const std::string& image, const TableTarget& target) {
  std::string text = "type: ImageCSV, path: " + recipe_word(table.path) + ", image: " + recipe_word(image) +
                     ", label: " + recipe_word(target.name);
  if (table.encoding) text += ", encoding: " + word_of(*table.encoding);
  for (const std::string& setting : table.settings) {
    if (setting.starts_with("delimiter: ")) text += ", " + setting;  // ImageCSV reads numbers in one way alone
  }
  return text + (target.is_class ? "" : ", task: regression");
}

std::string part_in(const std::string& folder, std::initializer_list<const char*> names) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory()) continue;
    if (std::ranges::find(names, lower_ascii(name)) != names.end()) return entry.path().string();
  }
  return "";
}

}  // namespace

std::string picture_layers(int64_t side, int64_t outputs, const std::string& outputs_comment,
                           const std::string& first) {
  constexpr int64_t kTiny = 12, kLittle = 36;
  std::vector<int64_t> channels = {64};
  if (side > kTiny) channels.push_back(128);
  if (side > kLittle) channels.push_back(128);
  channels.push_back(128);
  std::string text =
      "  blocks:\n    conv:\n      parameters: {channels: null}\n      layers:\n"
      "        - {type: Conv2d, name: conv, out_channels: \"${channels}\", kernel_size: 3, padding: 1, bias: false}\n"
      "        - {type: BatchNorm2d, name: norm}\n        - ReLU\n  layers:\n" +
      first;
  const std::string size = std::to_string(side);
  text +=
      commented("    - {type: conv, name: conv0, channels: 32}", "for pictures of " + size + " by " + size + " pixels");
  for (size_t i = 0; i < channels.size(); ++i) {
    if (i > 0) text += "    - {type: MaxPool2d, kernel_size: 2}\n";
    text +=
        "    - {type: conv, name: conv" + std::to_string(i + 1) + ", channels: " + std::to_string(channels[i]) + "}\n";
  }
  return text + "    - {type: AdaptiveAvgPool2d, output_size: 1}\n    - Flatten\n    - {type: Dropout, p: 0.2}\n" +
         commented("    - {type: Linear, out_features: " + std::to_string(outputs) + "}", outputs_comment);
}

std::optional<ImageFolders> find_image_folders(const std::string& folder) {
  ImageFolders found;
  found.train = part_in(folder, {"train", "training"});
  if (found.train.empty()) {
    found.train = folder;
  } else {
    found.eval = part_in(folder, {"val", "valid", "validation", "dev"});
    found.test = part_in(folder, {"test", "testing", "eval"});
    if (found.eval.empty()) found.eval = std::exchange(found.test, "");
  }
  const auto classes = classes_in(found.train);
  if (classes.contains("images") && classes.contains("masks")) {
    throw Error(found.train +
                ": holds images and masks; `init` writes no recipe for these: begin with "
                "recipes/segmentation_unet.yaml, whose data are alike");
  }
  if (classes.empty()) return std::nullopt;
  if (classes.size() == 1) {
    throw Error(
        found.train + ": holds one folder of images alone, " + classes.begin()->first +
        "; put the images of each class into a folder of its own, or name the folder that holds the classes' folders");
  }
  require_images(found.train, classes);
  for (const auto& [name, files] : classes) {
    found.counts[name] = static_cast<int64_t>(files.images.size());
    found.files.insert(found.files.end(), files.images.begin(), files.images.end());
    found.unread.insert(found.unread.end(), files.unread.begin(), files.unread.end());
  }
  if (!found.eval.empty()) {
    const auto others = classes_in(found.eval);
    for (const auto& [name, files] : others) {
      found.eval_images += static_cast<int64_t>(files.images.size());
      found.unread.insert(found.unread.end(), files.unread.begin(), files.unread.end());
    }
    if (found.eval_images == 0) {
      found.test = std::exchange(found.eval, "");  // not sorted into classes
    } else {
      require_images(found.eval, others);
    }
  }
  return found;
}

Draft draft_image_folders(const ImageFolders& folders, const InitOptions& options) {
  ImagePlan plan;
  const auto total = static_cast<int64_t>(folders.files.size());
  plan.subject = "Learns the " + std::to_string(folders.counts.size()) + " classes of the pictures in " +
                 folders.train + ", " + grouped(total) + " of them";
  plan.train_data = "type: ImageFolder, root: " + recipe_word(folders.train);
  plan.eval_data = "type: ImageFolder, root: " + recipe_word(folders.eval.empty() ? folders.train : folders.eval);
  plan.is_split = folders.eval.empty();
  plan.counts = folders.counts;
  plan.stratifies = rarest_of(plan.counts) >= 5;
  plan.outputs = static_cast<int64_t>(folders.counts.size());
  plan.images = plan.is_split ? static_cast<int64_t>(kTrainedImages * static_cast<double>(total)) : total;
  plan.sight = look_at_images(folders.files);
  plan.sight.broken += static_cast<int64_t>(folders.unread.size());
  if (plan.sight.first_broken.empty() && !folders.unread.empty()) plan.sight.first_broken = folders.unread.front();
  Draft draft = draft_of(plan, options);
  draft.seen.insert(draft.seen.begin(), folders.train + ": " + grouped(total) + " pictures in a folder for each class");
  draft.seen.push_back(plan.is_split
                           ? "split: 80 % of the pictures to train, the others to evaluate, drawn at random" +
                                 std::string(plan.stratifies ? ", each class in its share" : "")
                           : "split: evaluated on " + folders.eval + ", " + grouped(folders.eval_images) + " pictures");
  if (!folders.test.empty())
    draft.doubts.push_back(folders.test + " is not used; `trainrun eval` or `trainrun predict` can use it");
  return draft;
}

NamedImages find_named_images(const std::string& table, const ColumnSight& image) {
  const fs::path own = fs::path(table).parent_path();
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(own.empty() ? "." : own)) {
    const fs::path name = entry.path().filename();
    if (entry.is_directory() && !is_hidden_name(name.string())) folders.push_back(own / name);
  }
  std::sort(folders.begin(), folders.end());
  folders.insert(folders.begin(), own);
  NamedImages best{own.string(), {}};
  for (const fs::path& folder : folders) {
    NamedImages found{folder.string(), {}};
    for (const std::string& name : image.images) {
      if (fs::is_regular_file(folder / name)) found.paths.push_back((folder / name).string());
    }
    if (found.paths.size() > best.paths.size()) best = std::move(found);
  }
  return best;
}

Draft draft_image_table(const TableSight& table, const TableSight* evaluated, const std::string& image,
                        const TableTarget& target, const TableFiles& files, const InitOptions& options) {
  require_image_table(table, image, target);
  const NamedImages named = find_named_images(table.path, *table.find(image));
  const std::string folder = fs::path(table.path).parent_path().string();
  if (named.paths.empty()) {
    throw Error(table.path + ": none of the images that its column " + image +
                " names is there, neither in the folder of the table, " + (folder.empty() ? "." : folder) +
                ", nor in one of its folders");
  }
  const ColumnSight* other = evaluated ? evaluated->find(image) : nullptr;
  if (evaluated && !other) {
    throw Error(evaluated->path + ": has no column " + image + ", which names the images in " + table.path);
  }
  ImagePlan plan;
  plan.subject =
      "Learns " + target.name + " of the pictures that " + table.path + " names, " + grouped(table.rows) + " of them";
  const auto data = [&](const TableSight& sight, const std::string& root) {
    return image_data_text(sight, image, target) +
           (root == fs::path(sight.path).parent_path().string() ? "" : ", root: " + recipe_word(root));
  };
  plan.train_data = data(table, named.root);
  plan.eval_data = other ? data(*evaluated, find_named_images(evaluated->path, *other).root) : plan.train_data;
  plan.is_split = !evaluated;
  plan.counts = target.counts;
  plan.stratifies = target.is_class && rarest_of(plan.counts) >= 5;
  plan.outputs = target.is_class ? target.num_classes : 1;
  plan.images = plan.is_split ? static_cast<int64_t>(kTrainedImages * static_cast<double>(table.rows)) : table.rows;
  plan.sight = look_at_images(named.paths);
  const int64_t lacking = table.rows - static_cast<int64_t>(named.paths.size());
  plan.sight.broken += lacking;
  if (lacking > 0 && plan.sight.first_broken.empty()) plan.sight.first_broken = "a file that is not there";
  Draft draft = draft_of(plan, options);
  draft.seen.insert(draft.seen.begin(),
                    table.path + ": " + grouped(table.rows) + " rows, whose column " + image + " names pictures");
  draft.seen.push_back("predicted: " + target.name + " (" + target.reason + ")");
  if (named.root != folder) draft.seen.push_back("the paths of pictures begin at " + named.root);
  if (!target.doubt.empty()) draft.doubts.push_back(target.doubt);
  if (!files.test.empty()) draft.doubts.push_back(files.test + " is not used; `trainrun predict` can use it");
  return draft;
}

}  // namespace trainrun
