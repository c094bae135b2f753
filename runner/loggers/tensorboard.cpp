#include "runner/loggers/tensorboard.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <optional>
#include <vector>

#include "registry/formats/files/file_io.h"
#include "registry/language/error.h"
#include "runner/loggers/appended_file.h"
#include "runner/loggers/earlier_events.h"
#include "runner/loggers/tfevents.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr const char* kRecipe = "recipe/text_summary";

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The folder's event files, in the order in which TensorBoard reads them.
std::vector<std::string> event_files_in(const std::string& folder) {
  std::vector<std::string> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with(kPrefix)) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// The newest of the times in the names of event files; 0: there is none.
int64_t newest_time_of(const std::vector<std::string>& paths) {
  int64_t newest = 0;
  for (const std::string& path : paths) {
    const std::string name = fs::path(path).filename();
    int64_t time = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), time);
    newest = std::max(newest, time);
  }
  return newest;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

/// TensorBoard reads a folder's files in the order of their names: what goes on after another file has a later time in
/// its name, even where both began in one second.
std::string new_path_in(const std::string& folder, int64_t newest_time) {
  const int64_t time = std::max(static_cast<int64_t>(wall_time()), newest_time + 1);
  std::string digits = std::to_string(time);
  digits.insert(0, digits.size() < 10 ? 10 - digits.size() : 0, '0');
  return folder + "/" + std::string(kPrefix) + digits + "." + host_name() + "." + std::to_string(::getpid()) + ".0";
}

class TensorBoardLogger : public Logger, public TensorSink {
 public:
  TensorBoardLogger(std::string folder, int64_t histograms_every, int64_t num_pictures)
      : folder_(std::move(folder)), histograms_every_(histograms_every), num_pictures_(num_pictures) {}

  int64_t histograms_every() const override { return histograms_every_; }
  int64_t num_pictures() const override { return num_pictures_; }
  void on_pictures(const PicturesRecord& record) override { append(pictures_event(wall_time(), record)); }
  void on_graph(const DrawnGraph& graph) override { graph_ = graph; }
  void on_histograms(const HistogramRecord& record) override { append(histograms_event(wall_time(), record)); }

  void on_start(const RunInfo& info) override {
    start_ = info;
    begin();
  }

  void on_step(const StepRecord& record) override { append(scalars_event(wall_time(), record.step, record.figures())); }

  void on_evaluation(const EvaluationRecord& record) override {
    append(scalars_event(wall_time(), record.step, record.metrics));
  }

 private:
  static std::string version() { return framed_record(version_event(wall_time())); }

  /// What earlier files show of the step that the run goes on after, and what this process does not write again: a
  /// restart event hides all of that step, since it has no finer measure.
  static std::string events_to_keep(const std::vector<std::string>& files, const RunInfo& start) {
    std::string kept;
    try {
      for (const std::string& message : shown_events(files, start.start_step)) {
        const EarlierEvent event = read_event(message);
        const bool comes_again = event.tag == kRecipe || event.has_picture ||  // of the batch that comes next
                                 (start.evaluation_due && event.tag.starts_with("eval/"));
        if (!comes_again) kept += framed_record(message);
      }
    } catch (const DataError& error) {
      spdlog::warn("tensorboard: {}; what it has of step {} is not shown any more", error.what(), start.start_step);
    }
    return kept;
  }

  /// Where the disk does not let it, the next event tries again.
  void begin() {
    if (!start_) return;
    if (!file_) {
      create_folders(folder_);
      const std::vector<std::string> earlier = event_files_in(folder_);
      kept_ = events_to_keep(earlier, *start_);
      file_.emplace(new_path_in(folder_, newest_time_of(earlier)));
      goes_on_ = !earlier.empty() || start_->start_step > 0;
    }
    std::string events = version();
    if (goes_on_) {  // twice: TensorBoard takes the first that it meets in a folder for the beginning of the run
      const std::string restart = framed_record(restart_event(wall_time(), start_->start_step));
      events += restart + restart + kept_;
    }
    if (graph_) events += framed_record(graph_event(wall_time(), *graph_));
    file_->append(events + framed_record(text_event(wall_time(), start_->start_step, kRecipe,
                                                    "```yaml\n" + start_->recipe + "```\n")));
    start_.reset();
    kept_.clear();
  }

  void append(const std::string& event) {
    begin();
    if (file_->is_removed()) {  // with the run's folder, say, which is there again after the next checkpoint
      std::error_code not_yet;
      fs::create_directory(folder_, not_yet);
      if (file_->made_anew()) lacks_version_ = true;
    }
    if (lacks_version_) file_->append(version());
    lacks_version_ = false;
    file_->append(framed_record(event));
  }

  std::string folder_;
  int64_t histograms_every_;
  int64_t num_pictures_;
  std::optional<DrawnGraph> graph_;
  std::optional<AppendedFile> file_;  // from on_start on
  std::optional<RunInfo> start_;      // until it is written
  bool goes_on_ = false;              // where another file ends
  std::string kept_;                  // of other files: `events_to_keep`
  bool lacks_version_ = false;        // the file was made anew, and its first record is still to come
};

constexpr int64_t kMostPictures = 1000;  // each epoch

struct TensorBoard {
  std::optional<std::string> log_dir;
  std::optional<int64_t> histograms_every;
  int64_t images = 0;

  static void describe(Fields<TensorBoard>& f) {
    f.optional("log_dir", &TensorBoard::log_dir)
        .doc("the folder of the event files, for this run only; null: tensorboard in the run's folder");
    f.optional("histograms_every", &TensorBoard::histograms_every)
        .at_least(1)
        .unit("optimizer steps")
        .doc("how often histograms of all weights and of their gradients, before clipping, are written; null: never");
    f.optional("images", &TensorBoard::images)
        .at_least(0)
        .at_most(kMostPictures)
        .doc(
            "how many images of each epoch's first batch are written as the model gets them, after all transforms; "
            "pixels "
            "outside [0, 1] are stretched to it in each channel");
  }
  std::unique_ptr<Logger> build(const LoggerInputs& inputs) const {
    return std::make_unique<TensorBoardLogger>(log_dir.value_or(inputs.output_dir + "/tensorboard"),
                                               histograms_every.value_or(0), images);
  }
};

}  // namespace

void add_tensorboard(LoggerRegistry& loggers) {
  loggers.add<TensorBoard>(
      "tensorboard",
      "every figure, the recipe, the model's graph and, if asked, histograms and images, for `tensorboard --logdir`");
}

}  // namespace trainrun
