#include "runner/loggers/console.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <regex>
#include <sstream>

#include "registry/catalog.h"
#include "runner/base/text.h"
#include "runner/loggers/jsonl.h"
#include "runner/loggers/loggers.h"
#include "runner/loggers/terminal.h"
#include "tests/doctest.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace trainrun {
namespace {

using test::EnvironmentVariable;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::unique_ptr<Logger> build_logger(const std::string& name, const LoggerInputs& inputs) {
  Catalog catalog;
  add_loggers(catalog.loggers);
  std::vector<Problem> problems;
  Reader reader(catalog, problems);
  const auto component = Codec<Component<LoggerKind>>::read(Value::scalar(name, false, {}), reader);
  REQUIRE(component);
  return component->build(inputs);
}

RunInfo mnist_run() {
  RunInfo info;
  info.name = "mnist_cnn";
  info.output_dir = "runs/mnist_cnn";
  info.total_steps = 15000;
  info.num_epochs = 8;
  info.num_parameters = 693962;
  info.train_samples = 60000;
  info.eval_samples = 10000;
  info.effective_batch_size = 32;
  info.device = "cpu";
  return info;
}

StepRecord step_100() {
  StepRecord record;
  record.step = 100;
  record.epoch = 0;
  record.seconds = 12.3;
  record.loss = 0.41032;
  record.loss_avg = 0.69214;
  record.lr = 2e-4;
  record.samples_per_second = 5812.4;
  return record;
}

/// A terminal of some width: what is written to `file()` appears on a screen.
class Screen {
 public:
  explicit Screen(unsigned short columns) : master_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    REQUIRE(::grantpt(master_) == 0);
    REQUIRE(::unlockpt(master_) == 0);
    slave_ = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    resize(columns);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen() {
    ::close(slave_);
    ::close(master_);
  }
  int file() const { return slave_; }

  /// Makes the window wider or narrower; lines that do not fit any more are broken, as terminals do.
  void resize(unsigned short columns) {
    show();
    winsize size{};
    size.ws_col = columns;
    size.ws_row = 50;
    REQUIRE(::ioctl(slave_, TIOCSWINSZ, &size) == 0);
    columns_ = columns;
    std::vector<std::string> broken;
    for (const std::string& line : lines_) {
      for (size_t begin = 0; begin == 0 || begin < line.size(); begin += columns_)
        broken.push_back(line.substr(begin, columns_));
    }
    lines_ = std::move(broken);
    row_ = lines_.size() - 1;
    column_ = lines_.back().size();
  }

  /// The lines on the screen, without blanks at their ends and without empty lines at the end.
  std::vector<std::string> lines() {
    show();
    std::vector<std::string> result = lines_;
    for (std::string& line : result) line.erase(line.find_last_not_of(' ') + 1);
    while (!result.empty() && result.back().empty()) result.pop_back();
    return result;
  }

 private:
  /// Shows all that was written so far: the kernel may hand it over in pieces, so we wait for a byte of our own after
  /// it.
  void show() {
    constexpr char kBell = '\a';
    REQUIRE(::write(slave_, &kBell, 1) == 1);
    std::string text;
    while (text.find(kBell) == std::string::npos) {
      std::string piece(1 << 16, '\0');
      const ssize_t size = ::read(master_, piece.data(), piece.size());
      REQUIRE(size > 0);
      text += piece.substr(0, static_cast<size_t>(size));
    }
    text.pop_back();
    show(text);
  }

  void show(const std::string& text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\r') {
        column_ = 0;
      } else if (text[i] == '\n') {
        next_line();
      } else if (text[i] == '\033') {
        size_t end = i + 2;
        while (std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
        command(text[end], end == i + 2 ? 0 : std::stoi(text.substr(i + 2, end - i - 2)));
        i = end;
      } else {
        if (column_ == columns_) next_line(), column_ = 0;
        lines_[row_].resize(std::max(lines_[row_].size(), column_ + 1), ' ');
        lines_[row_][column_++] = text[i];
      }
    }
  }

  void next_line() {
    ++row_;
    if (row_ == lines_.size()) lines_.emplace_back();
  }

  void command(char name, int count) {
    if (name == 'A') row_ -= static_cast<size_t>(count);
    if (name != 'J') return;
    lines_[row_].resize(std::min(lines_[row_].size(), column_));
    lines_.resize(row_ + 1);
  }

  int master_;
  int slave_ = -1;
  size_t columns_ = 80;
  std::vector<std::string> lines_ = {""};
  size_t row_ = 0;
  size_t column_ = 0;
};

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("a line of metrics.jsonl has the contract's keys in its order") {
  CHECK(jsonl_line(step_100()) ==
        R"({"step": 100, "epoch": 0, "time": 12.3, "split": "train", "train/loss": 0.41032, "train/lr": 2e-04, )"
        R"("train/samples_per_second": 5812.4, "train/loss_avg": 0.69214})");
  StepRecord two_losses = step_100();
  two_losses.losses = {{"train/loss/digit", 0.25}, {"train/loss/pixels", 0.1}};
  CHECK(nlohmann::json::parse(jsonl_line(two_losses)).at("train/loss/pixels").get<double>() == 0.1);
  EvaluationRecord record{1875, 0, 61.23456, {{"eval/loss", 0.0612}, {"eval/accuracy", 0.9802}}};
  CHECK(jsonl_line(record) ==
        R"({"step": 1875, "epoch": 0, "time": 61.235, "split": "eval", "eval/loss": 0.0612, "eval/accuracy": 0.9802})");
}

TEST_CASE("numbers of metrics.jsonl read back exactly, and what is not finite is null") {
  StepRecord record = step_100();
  record.loss = 0.1 + 0.2;
  record.loss_avg = kNaN;
  record.grad_norm = kInfinity;
  const auto read = nlohmann::json::parse(jsonl_line(record));
  CHECK(read.at("train/loss").get<double>() == 0.1 + 0.2);
  CHECK(read.at("train/loss_avg").is_null());
  CHECK(read.at("train/grad_norm").is_null());
}

TEST_CASE("jsonl appends whole lines to what is there, as a resumed run needs") {
  const TemporaryFolder folder;
  LoggerInputs inputs;
  inputs.output_dir = folder.path();
  build_logger("jsonl", inputs)->on_step(step_100());
  const auto logger = build_logger("jsonl", inputs);
  logger->on_evaluation({100, 0, 13, {{"eval/loss", 0.5}}});
  CHECK(content_of(folder / "metrics.jsonl") ==
        jsonl_line(step_100()) + "\n" + R"({"step": 100, "epoch": 0, "time": 13, "split": "eval", "eval/loss": 0.5})" +
            "\n");
}

TEST_CASE("a metrics.jsonl that cannot be opened is an error that names it") {
  const TemporaryFolder folder;
  LoggerInputs inputs;
  inputs.output_dir = folder / "missing";
  CHECK_THROWS_WITH_AS(build_logger("jsonl", inputs), doctest::Contains("missing/metrics.jsonl: cannot open"), Error);
}

TEST_CASE("the console's lines read as the contract shows them") {
  const RunInfo info = mnist_run();
  CHECK(step_line(step_100(), info) == "step 100/15000 loss 0.4103 avg 0.6921 lr 2.0e-04 5,812 samples/s");
  StepRecord slow = step_100();
  slow.samples_per_second = 0.3127;
  CHECK(step_line(slow, info) == "step 100/15000 loss 0.4103 avg 0.6921 lr 2.0e-04 0.313 samples/s");
  StepRecord clipped = step_100();
  clipped.grad_norm = 1.25;
  CHECK(step_line(clipped, info) ==
        "step 100/15000 loss 0.4103 avg 0.6921 lr 2.0e-04 grad_norm 1.2500 5,812 samples/s");
  StepRecord scaled = step_100();
  scaled.loss_scale = 32768;
  scaled.skipped_steps = 2;
  CHECK(step_line(scaled, info) == "step 100/15000 loss 0.4103 avg 0.6921 lr 2.0e-04 skipped 2 5,812 samples/s");
  const auto read = nlohmann::json::parse(jsonl_line(scaled));
  CHECK(read.at("train/loss_scale") == 32768);
  CHECK(read.at("train/skipped_steps") == 2);
  CHECK(evaluation_line({1875, 0, 1, {{"eval/loss", 0.0612}, {"eval/accuracy", 0.9802}}}, info) ==
        "eval step 1875/15000 loss 0.0612 accuracy 98.02 %");
  StepRecord two_losses = step_100();
  two_losses.losses = {{"train/loss/digit", 0.25}, {"train/loss/pixels", 0.1}};
  CHECK(step_line(two_losses, info) ==
        "step 100/15000 loss 0.4103 loss/digit 0.2500 loss/pixels 0.1000 avg 0.6921 "
        "lr 2.0e-04 5,812 samples/s");
  CHECK(evaluation_line({1875, 0, 1, {{"eval/loss", 0.0612}, {"eval/loss/digit", 0.05}, {"eval/f1/3", 0.5}}}, info) ==
        "eval step 1875/15000 loss 0.0612 loss/digit 0.0500");
  CHECK(checkpoint_line({1875, "runs/mnist_cnn/checkpoints/epoch-0001"}, info) ==
        "checkpoint step 1875/15000 runs/mnist_cnn/checkpoints/epoch-0001");
  CHECK(start_lines(info) ==
        Lines{"mnist_cnn: 693,962 parameters, 60,000 training samples, 10,000 evaluation samples",
              "15,000 steps in 8 epochs, effective batch 32, device cpu, output in runs/mnist_cnn"});
  RunInfo resumed = info;
  resumed.start_step = 3750;
  resumed.num_epochs = 0;
  resumed.eval_samples = std::nullopt;
  CHECK(start_lines(resumed) == Lines{"mnist_cnn: 693,962 parameters, 60,000 training samples",
                                      "15,000 steps, effective batch 32, device cpu, output in runs/mnist_cnn",
                                      "resumed at step 3750/15000"});
}

TEST_CASE("numbers are written for people") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(1000) == "1,000");
  CHECK(grouped(-1234567) == "-1,234,567");
  CHECK(rate_text(0) == "0");
  CHECK(rate_text(0.00001234) == "1.23e-05");
  CHECK(rate_text(0.0417) == "0.0417");
  CHECK(rate_text(0.99951) == "1.00");
  CHECK(rate_text(4.2349) == "4.23");
  CHECK(rate_text(9.996) == "10.0");
  CHECK(rate_text(42.36) == "42.4");
  CHECK(rate_text(99.96) == "100");
  CHECK(rate_text(5812.4) == "5,812");
  CHECK(rate_text(std::numeric_limits<double>::infinity()) == "inf");
  CHECK(decimal(0) == "0.0000");
  CHECK(decimal(2.30259) == "2.3026");
  CHECK(decimal(0.00012) == "1.200e-04");
  CHECK(decimal(1.5e7) == "1.500e+07");
  CHECK(decimal(kNaN) == "nan");
  CHECK(duration(15.34) == "15.3 s");
  CHECK(duration(59.99) == "1 min 00 s");
  CHECK(duration(192) == "3 min 12 s");
  CHECK(duration(7500) == "2 h 05 min");
  CHECK(bytes_text(640) == "640 B");
  CHECK(bytes_text(2.64e6) == "2.64 MB");
  CHECK(amount_text(18.44e6) == "18.4 M");
  CHECK(amount_text(12) == "12");
}

TEST_CASE("the progress bar fits every width and drops the less important parts first") {
  const ProgressState state{5100, 15000, 0.0612, 5812, 12};
  CHECK(progress_bar(state, 79) == "[========>               ] 34 % 5100/15000 loss 0.0612 5,812 samples/s ETA 12 s");
  CHECK(progress_bar(state, 50) == "[===>       ] 34 % 5100/15000 loss 0.0612 ETA 12 s");
  CHECK(progress_bar(state, 30) == "[====>         ] 34 % ETA 12 s");
  for (size_t width = 0; width < 200; ++width) CHECK(progress_bar(state, width).size() <= width);
  CHECK(progress_bar({15000, 15000, 0, 1, 0}, 60).starts_with("[=="));
}

TEST_CASE("a line printed while the progress bar stands takes its place, and nothing of the bar stays") {
  const EnvironmentVariable terminal_type("TERM", "xterm-256color");
  const EnvironmentVariable no_color("NO_COLOR", std::nullopt);
  Screen screen(40);
  Terminal terminal(screen.file(), screen.file());
  REQUIRE(terminal.has_status());
  CHECK(terminal.width() == 40);
  terminal.print(Terminal::Stream::kOut, "first\n");
  terminal.set_status("[=====>      ] 34 % a long status");
  CHECK(screen.lines() == Lines{"first", "[=====>      ] 34 % a long status"});
  terminal.print(Terminal::Stream::kOut, "second\n");
  terminal.print(Terminal::Stream::kError, "third\n");
  terminal.set_status("[======>     ] 35 %");
  CHECK(screen.lines() == Lines{"first", "second", "third", "[======>     ] 35 %"});
  terminal.set_status("");
  CHECK(screen.lines() == Lines{"first", "second", "third"});
}

TEST_CASE("a window made narrower while the progress bar stands keeps nothing of it") {
  const EnvironmentVariable terminal_type("TERM", "xterm-256color");
  const EnvironmentVariable no_color("NO_COLOR", std::nullopt);
  Screen screen(40);
  Terminal terminal(screen.file(), screen.file());
  terminal.print(Terminal::Stream::kOut, "first\n");
  terminal.set_status("[=====>      ] 34 % a long status");
  CHECK(screen.lines().size() == 2);
  screen.resize(15);
  terminal.print(Terminal::Stream::kOut, "second\n");
  terminal.set_status("34 %");
  CHECK(screen.lines() == Lines{"first", "second", "34 %"});
}

TEST_CASE(
    "there is no progress bar and no colour where NO_COLOR is set, the terminal is dumb, or the output is a file") {
  const EnvironmentVariable terminal_type("TERM", "xterm-256color");
  const EnvironmentVariable no_color("NO_COLOR", std::nullopt);
  Screen screen(40);
  {
    const EnvironmentVariable set("NO_COLOR", "1");
    CHECK_FALSE(Terminal(screen.file(), screen.file()).has_status());
  }
  {
    const EnvironmentVariable dumb("TERM", "dumb");
    CHECK_FALSE(Terminal(screen.file(), screen.file()).has_status());
  }
  const TemporaryFolder folder;
  const int file = ::open((folder / "out").c_str(), O_WRONLY | O_CREAT, 0666);
  Terminal terminal(file, file);
  CHECK_FALSE(terminal.has_status());
  terminal.set_status("status");
  terminal.print(Terminal::Stream::kOut, "line\n");
  ::close(file);
  CHECK(content_of(folder / "out") == "line\n");
}

TEST_CASE("log.txt holds what the console would show, with times and the rank, and is appended to") {
  const TemporaryFolder folder;
  const std::string path = folder / "log.txt";
  LoggerInputs inputs;
  inputs.output_dir = folder.path();
  for (int start = 0; start < 2; ++start) {
    start_log(path, true, false);
    const auto logger = build_logger("console", inputs);
    logger->on_start(mnist_run());
    logger->on_step(step_100());
    spdlog::warn("this is odd");
    spdlog::debug("unheard");
  }
  std::istringstream lines(content_of(path));
  std::vector<std::string> messages;
  const std::regex form(R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \[rank 0\] (.*))");
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    REQUIRE(std::regex_match(line, match, form));
    messages.push_back(match[1]);
  }
  REQUIRE(messages.size() == 8);
  CHECK(messages[2] == step_line(step_100(), mnist_run()));
  CHECK(messages[3] == "warning: this is odd");
  CHECK(std::equal(messages.begin(), messages.begin() + 4, messages.begin() + 4));
  start_log("", true, false);  // lets go of the file
}

TEST_CASE("the end says what was reached and where the weights are") {
  const TemporaryFolder folder;
  start_log(folder / "log.txt", true, false);
  LoggerInputs inputs;
  inputs.output_dir = folder.path();
  RunInfo info = mnist_run();
  info.output_dir = folder.path();
  const auto logger = build_logger("console", inputs);
  logger->on_start(info);
  logger->on_checkpoint({15000, folder / "checkpoints/epoch-0008"});
  std::filesystem::create_directories(folder / "checkpoints/best");
  write_content(folder / "checkpoints/best/model.safetensors", "");
  logger->on_end({15000, 15.34, "", {{"eval/loss", 0.0412}, {"eval/accuracy", 0.9891}}});
  const std::string log = content_of(folder / "log.txt");
  CHECK(std::regex_search(
      log, std::regex("done 15,000 steps in 15.3 s, [0-9,]+ samples/s; loss 0.0412 accuracy 98.91 %\n")));
  CHECK(log.find("best weights " + (folder / "checkpoints/best/model.safetensors") + "\n") != std::string::npos);
  CHECK(log.find("] weights " + (folder / "checkpoints/epoch-0008/model.safetensors") + "\n") != std::string::npos);
  build_logger("console", inputs)->on_end({12, 0.5, "SIGTERM", {}});
  CHECK(content_of(folder / "log.txt").find("stopped by SIGTERM at step 12/0 in 0.5 s") != std::string::npos);
  start_log("", true, false);
}

}  // namespace trainrun
