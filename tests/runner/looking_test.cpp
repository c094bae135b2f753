// Looking at runs: tables, differences, pages.
#include <algorithm>
#include <cmath>
#include <random>

#include "registry/catalog.h"
#include "registry/formats/files/file_io.h"
#include "runner/base/text.h"
#include "runner/recipe/yaml.h"
#include "runner/report/page/html.h"
#include "runner/report/page/page_assets.h"
#include "runner/report/run_report.h"
#include "runner/report/run_table.h"
#include "runner/report/score_curves.h"
#include "runner/run/run_identity.h"
#include "runner/run/watched_figure.h"
#include "tests/doctest.h"
#include "tests/support.h"

namespace trainrun {
namespace {

Value looked_at(const std::string& text) {
  std::vector<Problem> problems;
  Value value = parse_yaml(text, std::make_shared<const std::string>("a.yaml"), problems);
  REQUIRE(problems.empty());
  return value;
}

std::vector<RecipeChange> aligned(const std::string& before, const std::string& now) {
  return changes_between(looked_at(before), looked_at(now), false, Lists::kAligned);
}

RunRecord run_of(const std::string& path, const std::string& recipe) {
  RunRecord run;
  run.path = path;
  run.name = "n";
  run.state = RunRecord::State::kFinished;
  run.recipe = looked_at(recipe);
  return run;
}

}  // namespace

TEST_CASE("layers are aligned by name and type, so that one that came is one difference") {
  const std::string before =
      "{model: {layers: [{type: Linear, out_features: 8}, ReLU, {type: Linear, out_features: 2}]}}";
  const auto added = aligned(before,
                             "{model: {layers: [{type: Linear, out_features: 8}, ReLU, {type: Dropout, p: 0.1}, {type: "
                             "Linear, out_features: 2}]}}");
  REQUIRE(added.size() == 1);
  CHECK(added[0].path == "model.layers[2]");
  CHECK(added[0].kind == RecipeChange::Kind::kAdded);
  CHECK(value_text(added[0].now) == "{type: Dropout, p: 0.1}");
  const auto replaced =
      aligned(before, "{model: {layers: [{type: Linear, out_features: 8}, GELU, {type: Linear, out_features: 2}]}}");
  REQUIRE(replaced.size() == 1);
  CHECK(replaced[0].path == "model.layers[1]");
  const auto by_name = aligned("{model: {layers: [{type: ReLU, name: a}, {type: ReLU, name: b}]}}",
                               "{model: {layers: [{type: ReLU, name: b}, {type: GELU, name: c}]}}");
  REQUIRE(by_name.size() == 2);
  CHECK(by_name[0].kind == RecipeChange::Kind::kRemoved);
  CHECK(by_name[0].path == "model.layers[0]");
  CHECK(by_name[1].kind == RecipeChange::Kind::kAdded);
}

TEST_CASE("aligned or by position, lists differ in the same cases") {
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed): the same on every run
  const std::vector<std::string> layers = {
      "ReLU",    "{type: ReLU}",         "{type: Linear, out_features: 2}", "{type: Dropout, p: 0.5}",
      "Dropout", "{type: ReLU, name: a}"};
  const auto list = [&] {
    std::string text = "{model: {layers: [Flatten";
    for (size_t i = random() % 4; i > 0; --i) text += ", " + layers[random() % layers.size()];
    return text + "]}}";
  };
  int equal = 0;
  for (int round = 0; round < 500; ++round) {
    const std::string before = list(), now = list();
    CAPTURE(before);
    CAPTURE(now);
    const bool is_equal = compare_recipes(looked_at(before), looked_at(now), false).numbers.empty();
    CHECK(aligned(before, now).empty() == is_equal);
    equal += is_equal ? 1 : 0;
  }
  CHECK(equal > 20);
}

TEST_CASE("a change of how long a run goes on is told from one of its numbers and from one of none") {
  using Effect = RecipeChange::Effect;
  const auto changes = aligned("{training: {num_epochs: 1, max_grad_norm: 1}, logging: {every_steps: 1}}",
                               "{training: {num_epochs: 2, max_grad_norm: 2}, logging: {every_steps: 2}}");
  REQUIRE(changes.size() == 3);
  std::map<std::string, Effect> effects;
  for (const RecipeChange& change : changes) effects[change.path] = change.effect;
  CHECK((effects == std::map<std::string, Effect>{{"training.num_epochs", Effect::kLength},
                                                  {"training.max_grad_norm", Effect::kNumbers},
                                                  {"logging.every_steps", Effect::kNone}}));
}

TEST_CASE("conditions are read with their relations, and what is none is refused") {
  const auto filters = parse_filters("optimizer.lr>=1e-3 and state = finished and seed!=3 and a==b");
  REQUIRE(filters.size() == 4);
  CHECK(filters[0].key == "optimizer.lr");
  CHECK(filters[0].relation == ">=");
  CHECK(filters[0].value == "1e-3");
  CHECK(filters[1].key == "state");
  CHECK(filters[1].value == "finished");
  CHECK(filters[2].relation == "!=");
  CHECK(filters[3].relation == "=");
  for (const char* text : {"", "lr", ">1", "a!b", "a>1 and "}) CHECK_THROWS_AS(parse_filters(text), Error);
}

TEST_CASE("a table is no wider than it may be, and names what does not fit") {
  RunTable table;
  table.folder = "runs";
  table.runs = {run_of("runs/a", "{name: n, optimizer: {type: SGD, lr: 0.1}, model: {layers: [ReLU]}}"),
                run_of("runs/b", "{name: n, optimizer: {type: SGD, lr: 0.2}, model: {layers: [GELU, ReLU]}}")};
  table.keys = differing_keys(table.runs);
  REQUIRE(table.keys.size() == 2);
  CHECK(table.keys[1].path == "optimizer.lr");
  CHECK(table.keys[1].values == std::vector<std::string>{"0.1", "0.2"});
  CHECK(to_text(table, 0).find("optimizer.lr") != std::string::npos);
  for (size_t width = 20; width < 120; width += 7) {
    const std::string text = to_text(table, width);
    size_t begin = 0;
    for (size_t end = text.find('\n'); end != std::string::npos; begin = end + 1, end = text.find('\n', begin)) {
      CHECK(text_width(text.substr(begin, end - begin)) <= width);
    }
  }
  std::string narrow = to_text(table, 40);
  std::ranges::replace(narrow, '\n', ' ');  // lines end where the width does
  CHECK(narrow.find("1 more key differs: optimizer.lr") != std::string::npos);
  CHECK(narrow.find("1 column does not fit: ") != std::string::npos);
  CHECK(to_text(table, 0).find("not fit") == std::string::npos);
  CHECK(to_text(table, 0).find("differs") == std::string::npos);
}

TEST_CASE(
    "columns that are asked for are shown however wide, and where there is room for few keys, the most telling are") {
  RunTable table;
  table.folder = "runs";
  for (const char* name : {"a", "b", "c"}) table.runs.push_back(run_of(std::string("runs/") + name, "{name: n}"));
  table.keys = {{"dataset.train.path", {std::string(30, 'x'), std::string(30, 'y'), "z"}, true},
                {"logging.every_steps", {"1", "2", "3"}, false},
                {"model.layers[0].p", {"1", "2", "2"}, true},
                {"optimizer.lr", {"1", "2", "2"}, true},
                {"seed", {"1", "2", "3"}, true}};
  const std::string text = to_text(table, 0);
  const std::string head = text.substr(0, text.find('\n'));
  size_t before = 0;
  for (const char* key : {"seed", "optimizer.lr", "model.layers[0].p", "dataset.train.path", "logging.every_steps"}) {
    CAPTURE(key);
    const size_t at = head.find(key);
    REQUIRE(at != std::string::npos);
    CHECK(at > before);
    before = at;
  }
  table.columns = std::vector<RunTable::Key>{{"optimizer.lr", {"1", "2", "2"}, true}, {"seconds", {"", "", ""}, true}};
  const std::string asked = to_text(table, 10);
  CHECK(asked.substr(0, asked.find('\n')) == "run  optimizer.lr  time");
}

TEST_CASE("a run is judged by what keep_best monitors, else by what is watched, else by its first metric") {
  const Catalog catalog = builtins();
  const auto figure = [&](const std::string& text) { return watched_figure(looked_at(text), catalog); };
  CHECK(figure("{checkpoint: {keep_best: {monitor: eval/f1, mode: max}}, metrics: [Accuracy]}").name == "eval/f1");
  CHECK(figure("{callbacks: [{type: EarlyStopping, monitor: eval/mae, mode: min}], metrics: [Accuracy]}").name ==
        "eval/mae");
  CHECK(figure("{metrics: [Accuracy]}").name == "eval/accuracy");
  CHECK(figure("{metrics: [Accuracy]}").better == MonitorMode::kMax);
  CHECK(figure("{metrics: [MAE]}").better == MonitorMode::kMin);
  CHECK(figure("{metrics: [{type: F1, name: mine}], dataset: {eval: {clean: {type: Digits}}}}").name ==
        "eval/clean/mine");
  CHECK(figure("{}").name == "eval/loss");
  CHECK(figure("{}").better == MonitorMode::kMin);
  CHECK(evaluation_decides(looked_at("{scheduler: ReduceLROnPlateau}"), catalog) == true);
  CHECK(evaluation_decides(looked_at("{scheduler: CosineAnnealingLR}"), catalog) == false);
  CHECK(evaluation_decides(looked_at("{}"), catalog) == false);
  CHECK(evaluation_decides(looked_at("{scheduler: OfAPlugin}"), catalog) == std::nullopt);
}

TEST_CASE("areas under curves are those of closed forms") {
  const Scored perfect = {{0.9, true}, {0.8, true}, {0.2, false}, {0.1, false}};
  CHECK(roc_curve(perfect).figure == 1);
  CHECK(precision_recall_curve(perfect).figure == 1);
  const Scored tied = {{0.5, true}, {0.5, false}, {0.5, true}, {0.5, false}};
  CHECK(roc_curve(tied).figure == 0.5);
  CHECK(precision_recall_curve(tied).figure == 0.5);
  const Scored reversed = {{0.1, true}, {0.9, false}};
  CHECK(roc_curve(reversed).figure == 0);
  CHECK(std::isnan(roc_curve({{0.5, true}}).figure));
  const Scored sure = {{0.95, true}, {0.95, false}};
  CHECK(calibration_curve(sure).figure == doctest::Approx(0.45));
  std::vector<std::pair<double, double>> line;
  for (int i = 0; i < 1000; ++i) line.emplace_back(i, i);
  const auto some = thinned(line, 10);
  CHECK(some.size() == 10);
  CHECK(some.front().first == 0);
  CHECK(some.back().first == 999);
}

TEST_CASE("thinned lines keep the extremes, what is not finite, the first and the last") {
  LoggedLines lines;
  for (int64_t i = 0; i < 1000; ++i) {
    const double loss = i == 333 ? 50 : i == 500 ? NAN : i == 700 ? -9 : 1;
    lines.add({i, 0, static_cast<double>(i), false, {{"train/loss", loss}}});
  }
  lines.thin(50, "train/loss");
  CHECK(lines.steps.size() <= 52);
  CHECK(lines.logged == 1000);
  for (const int64_t step : {0, 333, 500, 700, 999}) CHECK(std::ranges::count(lines.steps, step) == 1);
  CHECK(std::is_sorted(lines.steps.begin(), lines.steps.end()));
  CHECK(lines.columns[0].values.size() == lines.steps.size());
}

TEST_CASE("nothing that a page is given can end a script or a tag") {
  const std::string hostile = "</script><b>\"'&\x01\xff\n";
  const std::string json = script_json({{"a", hostile}});
  for (const char letter : {'<', '>', '&', '\n'}) CHECK(json.find(letter) == std::string::npos);
  CHECK(nlohmann::json::parse(script_json({{"a", "</script>&"}}))["a"] == "</script>&");
  const std::string html = escaped_html(hostile);
  for (const char letter : {'<', '>', '"', '\'', '\x01'}) CHECK(html.find(letter) == std::string::npos);
  CHECK(escaped_html("a & b") == "a &amp; b");
  for (const std::string_view script : {chart_library(), report_script()}) {
    CHECK(script.find("</script") == std::string_view::npos);
    CHECK(script.size() > 1000);
  }
  CHECK(report_style().find("</style") == std::string_view::npos);
  CHECK(report_script() == read_file("runner/report/page/report.js", 1 << 20));
}

}  // namespace trainrun
