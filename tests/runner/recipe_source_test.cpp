#include "runner/recipe/recipe_source.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "registry/language/interpolation.h"
#include "runner/base/limits.h"
#include "runner/recipe/merge.h"
#include "runner/recipe/yaml.h"
#include "tests/doctest.h"
#include "tests/runner/recipe_support.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using test::EnvironmentVariable;
using test::FaultyRecipe;
using test::node_at;

/// An empty folder that is the working directory while this lives.
class Workplace {
 public:
  Workplace() : before_(fs::current_path()) { fs::current_path(folder_.path()); }
  ~Workplace() { fs::current_path(before_); }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  void write(const std::string& path, const std::string& text) const {
    if (fs::path(path).has_parent_path()) fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }

 private:
  fs::path before_;
  TemporaryFolder folder_;
};

std::string errors_of(const ResolvedRecipe& recipe) {
  std::vector<std::string> lines;
  for (const Problem& problem : recipe.problems) lines.push_back(problem.to_string());
  return join(lines, "\n");
}

ResolvedRecipe resolve(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const Workplace workplace;
  workplace.write("a.yaml", text);
  return resolve_recipe("a.yaml", overrides);
}

std::string errors_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return errors_of(resolve(text, overrides));
}

Value parse_good_value(const std::string& text) {
  std::vector<Problem> problems;
  Value value = parse_yaml(text, nullptr, problems);
  CHECK(problems.empty());
  return value;
}

void check_resolves(const std::string& text, const std::vector<std::string>& overrides, const std::string& expected) {
  const ResolvedRecipe recipe = resolve(text, overrides);
  INFO(to_yaml(recipe.value));
  CHECK(errors_of(recipe) == "");
  CHECK(same_recipe(recipe.value, parse_good_value(expected)));
}

}  // namespace

// Files

TEST_CASE("a recipe's folder is where its plugins are looked for first") {
  const Workplace workplace;
  workplace.write("recipes/a.yaml", "name: x\n");
  CHECK(resolve_recipe("recipes/a.yaml", {}).directory == "recipes");
  workplace.write("a.yaml", "name: x\n");
  CHECK(resolve_recipe("a.yaml", {}).directory == ".");
}

TEST_CASE("a file that is not there is an error with a near match") {
  const Workplace workplace;
  workplace.write("recipes/mnist_cnn.yaml", "name: x\n");
  CHECK(errors_of(resolve_recipe("recipes/mnist_cn.yaml", {})) ==
        "recipes/mnist_cn.yaml:1:1: no such file; did you mean recipes/mnist_cnn.yaml?");
  CHECK(errors_of(resolve_recipe("recipes/mnist_cnn", {})) ==
        "recipes/mnist_cnn:1:1: no such file; did you mean recipes/mnist_cnn.yaml?");
  CHECK(errors_of(resolve_recipe("nowhere/at_all.yaml", {})) == "nowhere/at_all.yaml:1:1: no such file");
  CHECK(errors_of(resolve_recipe("", {})).find("no such file") != std::string::npos);
  CHECK(errors_of(resolve_recipe("recipes", {})) == "recipes:1:1: this is a folder, not a recipe");
  CHECK(resolve_recipe("nowhere/at_all.yaml", {}).value.is_null());
}

TEST_CASE("a recipe is a mapping, and one that cannot be parsed is not gone on with") {
  CHECK(errors_of("[a, b]\n") == "a.yaml:1:1: a recipe is a mapping (key: value), found a list");
  CHECK(errors_of("just text\n") == "a.yaml:1:1: a recipe is a mapping (key: value), found 'just text'");
  CHECK(errors_of("~\n") == "a.yaml:1:1: a recipe is a mapping (key: value), found null");
  CHECK(errors_of("") == "a.yaml:1:1: the file is empty; expected a mapping (key: value)");
  const ResolvedRecipe broken = resolve("a: ${nope}\nb: [1\n", {"c.d=1"});
  CHECK(errors_of(broken) == "a.yaml:2:4: this '[' is never closed");
  CHECK(broken.value.is_null());
}

TEST_CASE("a file that is much too large is refused, not read") {
  const Workplace workplace;
  workplace.write("a.yaml", std::string(3 * kMaxRecipeBytes, '#'));
  CHECK(errors_of(resolve_recipe("a.yaml", {})) == "a.yaml:1:1: larger than 1024 KiB, so this is not a recipe");
  CHECK(errors_of(resolve_recipe("/dev/zero", {})) == "/dev/zero:1:1: expected a file, found a device");
}

// base

TEST_CASE("a base is merged first: mappings deeply, lists and scalars replace") {
  const Workplace workplace;
  workplace.write("recipes/base.yaml",
                  "name: base\noptimizer: {type: SGD, lr: 0.1}\nmetrics: [Accuracy, MSE]\nscheduler: {type: StepLR}\n"
                  "logging: {every_steps: 10, deep: {a: 1, b: 2}}\nloss: CrossEntropyLoss\n");
  workplace.write("recipes/a.yaml",
                  "base: base.yaml\nname: a\noptimizer:\n  lr: 0.2\nmetrics: [MSE]\nscheduler: null\n"
                  "logging: {deep: {b: 3, c: 4}}\nloss: {type: MSELoss}\nnew: 1\n");
  const ResolvedRecipe recipe = resolve_recipe("recipes/a.yaml", {});
  CHECK(errors_of(recipe) == "");
  CHECK(same_recipe(
      recipe.value,
      parse_good_value("{name: a, optimizer: {type: SGD, lr: 0.2}, metrics: [MSE], scheduler: null, "
                       "logging: {every_steps: 10, deep: {a: 1, b: 3, c: 4}}, loss: {type: MSELoss}, new: 1}")));
  CHECK(node_at(recipe.value, "optimizer.type").place().to_string() == "recipes/base.yaml:2:19");
  CHECK(node_at(recipe.value, "optimizer.lr").place().to_string() == "recipes/a.yaml:4:7");
  CHECK(node_at(recipe.value, "optimizer").place().to_string() == "recipes/a.yaml:4:3");
  CHECK(recipe.value.find("base") == nullptr);
}

TEST_CASE("of several bases the later wins, and bases have bases") {
  const Workplace workplace;
  workplace.write("one.yaml", "base: [zero.yaml]\na: 1\nb: 1\n");
  workplace.write("two.yaml", "base: zero.yaml\nb: 2\nc: 2\n");
  workplace.write("zero.yaml", "a: 0\nz: 0\nc: 0\n");
  workplace.write("a.yaml", "base: [one.yaml, two.yaml]\nc: 3\n");
  const ResolvedRecipe recipe = resolve_recipe("a.yaml", {});
  CHECK(errors_of(recipe) == "");
  CHECK(same_recipe(recipe.value, parse_good_value("{a: 0, b: 2, c: 3, z: 0}")));
  for (const char* none : {"base: null\na: 1\n", "base: []\na: 1\n", "base:\na: 1\n"}) {
    workplace.write("none.yaml", none);
    CHECK(same_recipe(resolve_recipe("none.yaml", {}).value, parse_good_value("a: 1")));
  }
}

TEST_CASE("a mapping with !replace takes the place of a base's, and a key with !remove goes") {
  const Workplace workplace;
  workplace.write("base.yaml",
                  "optimizer: {type: Adam, betas: [0.9, 0.99], o: {x: 1}}\ntraining: {a: 1, b: {c: 2, d: 3}}\ns: 1\n");
  const auto expect = [&](const std::string& text, const std::string& expected) {
    workplace.write("a.yaml", text);
    const ResolvedRecipe recipe = resolve_recipe("a.yaml", {});
    INFO(to_yaml(recipe.value));
    CHECK(errors_of(recipe) == "");
    CHECK(same_recipe(recipe.value, parse_good_value(expected)));
  };
  expect("base: base.yaml\noptimizer: !replace {type: SGD}\ntraining: !remove\ns: !remove\n",
         "optimizer: {type: SGD}\n");
  expect("base: base.yaml\noptimizer: !remove\ns: !remove\ntraining:\n  b: !replace\n    d: 4\n  a: !remove\n  e: 5\n",
         "training: {b: {d: 4}, e: 5}\n");
  expect("base: base.yaml\noptimizer: {o: !replace {y: 2}}\ntraining: !remove\ns: !replace {t: 1}\n",
         "optimizer: {type: Adam, betas: [0.9, 0.99], o: {y: 2}}\ns: {t: 1}\n");
  expect("optimizer: !replace {type: SGD}\n", "optimizer: {type: SGD}\n");
  workplace.write("part.yaml", "optimizer: !replace {type: SGD}\ns: !remove\n");  // laid on another base
  expect("base: [base.yaml, part.yaml]\noptimizer: {lr: 1}\n",
         "optimizer: {type: SGD, lr: 1}\ntraining: {a: 1, b: {c: 2, d: 3}}\n");
}

TEST_CASE("what !remove does not find is an error at its place, after all bases") {
  const Workplace workplace;
  workplace.write("base.yaml", "scheduler: {type: StepLR}\ns: !remove\n");
  workplace.write("a.yaml", "base: base.yaml\nschedular: !remove\nscheduler: {typ: !remove}\n");
  CHECK(errors_of(resolve_recipe("a.yaml", {})) ==
        "a.yaml:2:12: schedular: there is no 'schedular' to remove; did you mean scheduler?\n"
        "a.yaml:3:18: scheduler.typ: there is no 'typ' to remove; did you mean type?\n"
        "base.yaml:2:4: s: there is no 's' to remove; known: scheduler, schedular");
}

TEST_CASE("overrides replace and remove, too") {
  const std::string text = "optimizer: {type: Adam, betas: [0.9, 0.99]}\nscheduler: {type: StepLR, step_size: 3}\n";
  check_resolves(text, {"optimizer=!replace {type: SGD, lr: 0.1}", "scheduler=!remove"},
                 "optimizer: {type: SGD, lr: 0.1}\n");
  check_resolves(text, {"optimizer.betas=!remove", "scheduler={type: LinearLR, step_size: !remove}"},
                 "optimizer: {type: Adam}\nscheduler: {type: LinearLR}\n");
  check_resolves(text,
                 {"training=!replace {a: 1}", "scheduler= !remove", "scheduler={type: A}", "optimizer=!replace {}"},
                 "optimizer: {}\nscheduler: {type: A}\ntraining: {a: 1}\n");
  CHECK(
      errors_of(text, {"optimizr=!remove", "optimizer.beta=!remove", "optimizer.betas[0]=!remove", "none.x=!remove"}) ==
      "command line:1:1: optimizr: there is no 'optimizr' to remove; did you mean optimizer?\n"
      "command line:2:11: optimizer.beta: there is no 'beta' to remove; did you mean betas?\n"
      "command line:3:16: optimizer.betas[0]: !remove takes away a key of a mapping, not an item of a list; write the "
      "whole list\n"
      "command line:4:1: none: there is no 'none' to remove; known: optimizer, scheduler");
  CHECK(errors_of(text, {"optimizer={lr: !remove}"}) ==
        "command line:1:16: optimizer.lr: there is no 'lr' to remove; known: type, betas");
}

TEST_CASE("a base is looked for beside the recipe first, then from the working directory") {
  const Workplace workplace;
  workplace.write("recipes/common/b.yaml", "from: beside\n");
  workplace.write("common/b.yaml", "from: here\n");
  workplace.write("common/c.yaml", "from: here\n");
  workplace.write("recipes/a.yaml", "base: common/b.yaml\n");
  CHECK(node_at(resolve_recipe("recipes/a.yaml", {}).value, "from").text() == "beside");
  workplace.write("recipes/a.yaml", "base: common/c.yaml\n");
  CHECK(node_at(resolve_recipe("recipes/a.yaml", {}).value, "from").text() == "here");
  workplace.write("recipes/a.yaml", "base: " + fs::absolute("common/b.yaml").string() + "\n");
  CHECK(node_at(resolve_recipe("recipes/a.yaml", {}).value, "from").text() == "here");
  workplace.write("recipes/a.yaml", "base: ../common/b.yaml\n");
  const ResolvedRecipe up = resolve_recipe("recipes/a.yaml", {});
  CHECK(node_at(up.value, "from").place().to_string() == "common/b.yaml:1:7");
}

TEST_CASE("a base that is not there is an error at its name") {
  const Workplace workplace;
  workplace.write("recipes/base.yaml", "a: 1\n");
  workplace.write("recipes/a.yaml", "name: x\nbase: bsae.yaml\n");
  CHECK(errors_of(resolve_recipe("recipes/a.yaml", {})) ==
        "recipes/a.yaml:2:7: base: there is no file recipes/bsae.yaml, nor bsae.yaml; did you mean recipes/base.yaml?");
  workplace.write("recipes/a.yaml", "base: [base.yaml, {x: 1}, '', 7]\n");
  CHECK(errors_of(resolve_recipe("recipes/a.yaml", {})) ==
        "recipes/a.yaml:1:19: base[1]: expected the path of a recipe, found a mapping\n"
        "recipes/a.yaml:1:27: base[2]: expected the path of a recipe, found ''\n"
        "recipes/a.yaml:1:31: base[3]: there is no file recipes/7, nor 7");
}

TEST_CASE("a fault in a base is reported in the base, and nothing is made of the rest") {
  const Workplace workplace;
  workplace.write("b.yaml", "x: [1\n");
  workplace.write("c.yaml", "- list\n");
  workplace.write("a.yaml", "base: [b.yaml, c.yaml]\ny: ${x}\n");
  const ResolvedRecipe recipe = resolve_recipe("a.yaml", {});
  CHECK(errors_of(recipe) ==
        "a.yaml:1:16: base[1]: c.yaml is not a recipe: it does not hold a mapping (key: value)\n"
        "b.yaml:1:4: this '[' is never closed");
  CHECK(recipe.value.is_null());
}

TEST_CASE("recipes that are based on each other are an error that shows the chain") {
  const Workplace workplace;
  workplace.write("a.yaml", "base: b.yaml\n");
  workplace.write("b.yaml", "base: [c.yaml]\n");
  workplace.write("c.yaml", "base: b.yaml\n");
  CHECK(errors_of(resolve_recipe("a.yaml", {})) ==
        "c.yaml:1:7: base: recipes that are based on each other: b.yaml -> c.yaml -> b.yaml");
  workplace.write("self.yaml", "base: ./self.yaml\n");
  CHECK(errors_of(resolve_recipe("self.yaml", {})) ==
        "self.yaml:1:7: base: recipes that are based on each other: self.yaml -> self.yaml");
}

TEST_CASE("how many bases there are is bounded, in a row and altogether") {
  const Workplace workplace;
  for (int i = 0; i < 40; ++i) {
    const std::string next = std::to_string(i + 1) + ".yaml";
    workplace.write(std::to_string(i) + ".yaml", "base: " + next + "\n");
    workplace.write("w" + std::to_string(i) + ".yaml", "base: [w" + next + ", w" + next + "]\n");
  }
  CHECK(errors_of(resolve_recipe("0.yaml", {})).find("more than 16 bases in a row") != std::string::npos);
  CHECK(errors_of(resolve_recipe("w30.yaml", {})).find("more than 64 files in one recipe") != std::string::npos);
}

TEST_CASE("a base may name an environment variable, but no value of the recipe") {
  const Workplace workplace;
  workplace.write("common/b.yaml", "x: 1\n");
  workplace.write("a.yaml", "base: ${env:TRAINRUN_TEST_BASES:-common}/b.yaml\n");
  const EnvironmentVariable unset("TRAINRUN_TEST_BASES", std::nullopt);
  CHECK(same_recipe(resolve_recipe("a.yaml", {}).value, parse_good_value("x: 1")));
  workplace.write("a.yaml", "base: ${env:TRAINRUN_TEST_BASES}/b.yaml\n");
  CHECK(errors_of(resolve_recipe("a.yaml", {})) ==
        "a.yaml:1:7: base: the environment variable TRAINRUN_TEST_BASES is not set");
  workplace.write("a.yaml", "base: ${name}.yaml\nname: b\n");
  CHECK(errors_of(resolve_recipe("a.yaml", {})) ==
        "a.yaml:1:7: base: ${name}: the bases are read before the values; only ${env:…} can stand here");
}

// Overrides

TEST_CASE("overrides are YAML, come last and know their place") {
  const ResolvedRecipe recipe =
      resolve("optimizer: {type: SGD, lr: 0.1}\nmodel:\n  layers:\n    - {type: Linear, out_features: 8}\n",
              {"optimizer.lr=3e-4", "model.layers[0].out_features=64", " name = 'x y'",
               "dataloader={batch_size: 8, größe: [1, 2]}", "optimizer.momentum=", "tags=[a, b]"});
  CHECK(errors_of(recipe) == "");
  CHECK(same_recipe(recipe.value,
                    parse_good_value("{optimizer: {type: SGD, lr: 3e-4, momentum: null}, name: 'x y', tags: [a, b], "
                                     "model: {layers: [{type: Linear, out_features: 64}]}, "
                                     "dataloader: {batch_size: 8, größe: [1, 2]}}")));
  CHECK(node_at(recipe.value, "optimizer.lr").place().to_string() == "command line:1:14");
  CHECK(node_at(recipe.value, "model.layers[0].out_features").place().to_string() == "command line:2:30");
  CHECK(node_at(recipe.value, "name").place().to_string() == "command line:3:9");
  CHECK(node_at(recipe.value, "dataloader.größe[1]").place().to_string() == "command line:4:39");
  CHECK(node_at(recipe.value, "optimizer.type").place().to_string() == "a.yaml:1:19");
  const Value& optimizer = node_at(recipe.value, "optimizer");
  CHECK(optimizer.entries()[1].key_place.to_string() == "command line:1:11");
}

TEST_CASE("an override merges like a base, and the last one wins") {
  check_resolves("a: {b: 1, c: [1, 2]}\n", {"a={b: 2, d: 3}", "a.c=[3]", "a.b=4"}, "a: {b: 4, c: [3], d: 3}");
  check_resolves("a: [{b: 1, c: 1}]\n", {"a[0]={b: 2}"}, "a: [{b: 2, c: 1}]");
  check_resolves("a: {b: 1}\n", {"a=null"}, "a: null");
}

TEST_CASE("missing mappings on the way are created, also where there is null") {
  check_resolves("a: 1\n", {"b.c.d=2", "b.c.e=3"}, "{a: 1, b: {c: {d: 2, e: 3}}}");
  check_resolves("a: null\n", {"a.b=2"}, "a: {b: 2}");
}

TEST_CASE("the bare name of a component becomes a mapping when a parameter is set") {
  check_resolves("model: {layers: [Flatten, ReLU, block]}\nloss: MSELoss\n",
                 {"model.layers[1].inplace=true", "model.layers[2].channels=3", "loss.reduction=sum"},
                 "{model: {layers: [Flatten, {type: ReLU, inplace: true}, {type: block, channels: 3}]}, "
                 "loss: {type: MSELoss, reduction: sum}}");
}

TEST_CASE("an override that leads nowhere is a problem that says why") {
  const std::string text = "l: [1, {a: 2}]\ns: text\nn: 3\nm: {k: 1}\n";
  const FaultyRecipe cases[] = {
      {"l[2]=1", "command line:1:2: l[2]: l has 2 items, counted from 0; there is no [2]"},
      {"l[-1]=1", "command line:1:1: '-1' is not an index; an index is a number that counts from 0"},
      {"l.a=1", "command line:1:3: l.a: l is a list; name an item of it, as in l[0].a"},
      {"m[0]=1", "command line:1:2: m[0]: m is a mapping, not a list"},
      {"n.x=1", "command line:1:3: n.x: n is 3 and has no keys"},
      {"s.x.y=1", "command line:1:3: s.x.y: s is 'text' and has no keys"},
      {"new[0]=1", "command line:1:1: new[0]: new is not in the recipe, so it has no items"},
      {"m.new.x[0].y=1", "command line:1:3: m.new.x[0].y: m.new is not in the recipe, so it has no items"},
      {"name", "command line:1:1: 'name' has no '='; write key=value"},
      {"=1", "command line:1:1: a name is missing"},
      {"a..b=1", "command line:1:1: 'a..b' is not a path such as model.layers[0].type"},
      {"base=b.yaml", "command line:1:1: base cannot be set on the command line; name another recipe"},
      {"a=[1, 2", "command line:1:3: a: this '[' is never closed"},
      {"a={b: {c: 1, c: 2}}", "command line:1:14: a.b.c: duplicate key; the first is on line 1"},
      {"a=[{b: !x 1}]", "command line:1:8: a[0].b: unknown tag !x; a recipe's tags are !replace and !remove"},
      {"a=b: c",
       "command line:1:3: a: write a mapping as {a: b}, a list as [a, b], and a text that looks like one in quotes"},
      {"a=- b",
       "command line:1:3: a: write a mapping as {a: b}, a list as [a, b], and a text that looks like one in quotes"},
      {"a=#fff", "command line:1:3: a: a '#' begins a comment; put the value in quotes that YAML sees: '\"#fff\"'"},
      {"a=b\nc",
       "command line:1:3: a: a line end in a plain scalar would become a space; leave it out, or, where a text may "
       "have "
       "line ends, put the text in double quotes, as in \"a\\nb\""},
      {"a=\xFF", "command line:1:3: not UTF-8"},
  };
  for (const FaultyRecipe& override_case : cases) {
    INFO(override_case.input);
    const ResolvedRecipe recipe = resolve(text, {override_case.input});
    CHECK(errors_of(recipe) == override_case.expected);
    CHECK(same_recipe(recipe.value, parse_good_value(text)));
  }
  CHECK(errors_of(text, {"n.x=1", "ok=1", "l[5]=1"}).find("command line:3:2") != std::string::npos);
  std::string deep = "a";
  for (size_t i = 0; i < 100'000; ++i) deep += ".a";
  CHECK(errors_of(text, {deep + "=1"}) == "command line:1:1: a path of more than 64 steps");
  const std::string brackets = std::string(40, '[') + std::string(40, ']');
  CHECK(errors_of("m: 1\n", {"a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t.u.v.w.x.y.z=" + brackets})
            .find("more than 64 levels deep") != std::string::npos);
}

// Interpolation

TEST_CASE("a reference becomes the value it names, with its type") {
  check_resolves(
      "name: run\noutput_dir: runs/${name}/x\noptimizer: {lr: 1e-3, text: '5', list: [1, {a: b}]}\n"
      "lr: ${optimizer.lr}\nquoted: \"${optimizer.lr}\"\ntext: ${optimizer.text}\nlist: ${optimizer.list}\n"
      "item: ${optimizer.list[1].a}\nmap: ${optimizer.list[1]}\nboth: ${name}-${optimizer.lr}\nnothing: null\n"
      "none: ${nothing}\n",
      {},
      "{name: run, output_dir: runs/run/x, optimizer: {lr: 1e-3, text: '5', list: [1, {a: b}]}, lr: 1e-3, quoted: "
      "1e-3, "
      "text: '5', list: [1, {a: b}], item: b, map: {a: b}, both: run-1e-3, nothing: null, none: null}");
}

TEST_CASE("a reference is resolved after merging and overrides, whatever the order of the lines") {
  check_resolves("a: ${b}\nb: ${c.d}x\nc: {d: 1}\n", {"c.d=2", "e=${a}!"}, "{a: 2x, b: 2x, c: {d: 2}, e: 2x!}");
}

TEST_CASE("a reference may pass through another reference") {
  check_resolves(
      "data: {train: {root: r, n: [1, 2]}, eval: '${data.train}'}\nx: ${data.eval.root}\ny: ${data.eval.n[1]}\n", {},
      "{data: {train: {root: r, n: [1, 2]}, eval: {root: r, n: [1, 2]}}, x: r, y: 2}");
}

TEST_CASE("a substituted value stands where the reference stands, what is inside it where it was written") {
  const ResolvedRecipe recipe = resolve("a:\n  b: 1\nc:\n  ${a}\nd: x${a.b}\n");
  CHECK(node_at(recipe.value, "c").place().to_string() == "a.yaml:4:3");
  CHECK(node_at(recipe.value, "c.b").place().to_string() == "a.yaml:2:6");
  CHECK(node_at(recipe.value, "d").place().to_string() == "a.yaml:5:4");
  CHECK(node_at(recipe.value, "d").quoted());
}

TEST_CASE("the environment's text is a plain scalar where it stands alone") {
  const EnvironmentVariable number("TRAINRUN_TEST_A", "32");
  const EnvironmentVariable empty("TRAINRUN_TEST_B", "");
  const EnvironmentVariable unset("TRAINRUN_TEST_C", std::nullopt);
  const EnvironmentVariable dollars("TRAINRUN_TEST_D", "a${b}: c");
  check_resolves(
      "n: ${env:TRAINRUN_TEST_A}\nq: \"${env:TRAINRUN_TEST_A}\"\nt: x${env:TRAINRUN_TEST_A}\n"
      "e: ${env:TRAINRUN_TEST_B}\ne2: x${env:TRAINRUN_TEST_B}\ne3: ${env:TRAINRUN_TEST_B:-d}\n"
      "d: ${env:TRAINRUN_TEST_C:-1e-3}\nd2: \"${env:TRAINRUN_TEST_C:-}\"\nd3: x${env:TRAINRUN_TEST_C:-}\n"
      "d4: ${env:TRAINRUN_TEST_C:-tcp://h:80}\nd5: ${env:TRAINRUN_TEST_C:-runs/${n}}\n"
      "d6: ${env:TRAINRUN_TEST_C:-${env:TRAINRUN_TEST_A}}\nroot: \"${env:TRAINRUN_TEST_C:-data}/mnist\"\n"
      "literal: ${env:TRAINRUN_TEST_D}\n",
      {},
      "{n: 32, q: 32, t: x32, e: null, e2: x, e3: d, d: 1e-3, d2: null, d3: x, d4: 'tcp://h:80', d5: runs/32, d6: 32, "
      "root: data/mnist, literal: 'a${b}: c'}");
}

TEST_CASE("a variable that is not set is a problem that names it") {
  const EnvironmentVariable unset("TRAINRUN_TEST_C", std::nullopt);
  const EnvironmentVariable bytes("TRAINRUN_TEST_E", "\xFF");
  CHECK(errors_of("a:\n  - x${env:TRAINRUN_TEST_C}\n") ==
        "a.yaml:2:5: a[0]: the environment variable TRAINRUN_TEST_C is not set; set it, or write "
        "${env:TRAINRUN_TEST_C:-default}");
  CHECK(errors_of("a: ${env:TRAINRUN_TEST_E}\n") ==
        "a.yaml:1:4: a: the environment variable TRAINRUN_TEST_E is not UTF-8");
}

TEST_CASE("$${ is a literal ${") {
  const ResolvedRecipe recipe = resolve("a: $${name}\nb: x$${b}${c}\nc: 1\nd: costs 5$\n");
  CHECK(errors_of(recipe) == "");
  CHECK(node_at(recipe.value, "a").text() == "${name}");
  CHECK(node_at(recipe.value, "b").text() == "x${b}1");
  CHECK(node_at(recipe.value, "d").text() == "costs 5$");
}

TEST_CASE("keys are not interpolated") { check_resolves("a: 1\n${a}: 2\n", {}, "{a: 1, '${a}': 2}"); }

TEST_CASE("references that go wrong are problems, all of them, and stay as written") {
  const FaultyRecipe cases[] = {
      {"optimizer: {lr: 1}\na: ${optimzer.lr}\n",
       "a.yaml:2:4: a: ${optimzer.lr}: no value named optimzer.lr; did you mean optimizer.lr?"},
      {"optimizer: {lr: 1}\na: ${optimizer.learning_rate}\n",
       "a.yaml:2:4: a: ${optimizer.learning_rate}: no value named optimizer.learning_rate; did you mean optimizer.lr?"},
      {"optimizer: {momentum: 1}\na: ${momentum}\n",
       "a.yaml:2:4: a: ${momentum}: no value named momentum; did you mean optimizer.momentum?"},
      {"a: ${HOME}\n", "a.yaml:1:4: a: ${HOME}: no value named HOME; did you mean ${env:HOME}?"},
      {"a: ${zzz}\n", "a.yaml:1:4: a: ${zzz}: no value named zzz"},
      {"l: [1]\na: ${l[1]}\n", "a.yaml:2:4: a: ${l[1]}: l has 1 item, counted from 0"},
      {"l: [1]\na: ${l.x}\n", "a.yaml:2:4: a: ${l.x}: l is a list and has no keys"},
      {"l: {}\na: ${l[0]}\n", "a.yaml:2:4: a: ${l[0]}: l is a mapping, not a list"},
      {"s: 3\na: ${s.x}\n", "a.yaml:2:4: a: ${s.x}: s is 3 and has no keys"},
      {"l: [1]\na: x${l}\n", "a.yaml:2:4: a: ${l} is a list and cannot be part of a string"},
      {"m: {}\na: x${m}\n", "a.yaml:2:4: a: ${m} is a mapping and cannot be part of a string"},
      {"n: null\na: x${n}\n", "a.yaml:2:4: a: ${n} is null and cannot be part of a string"},
      {"a: x${b\n", "a.yaml:1:4: a: '${' without '}'; write $${ for a literal ${"},
      {"a: ${}\n", "a.yaml:1:4: a: ${}: a name is missing"},
      {"a: ${a}\n", "a.yaml:1:4: a: refers to itself: a -> a"},
      {"a: x${b}\nb: ${c}\nc: ${a}\n", "a.yaml:1:4: a: refers to itself: b -> c -> a -> b"},
      {"m: {x: '${m}'}\n", "a.yaml:1:8: m.x: refers to itself: m -> m"},
      {"l: ['${l[1]}', '${l[0]}']\n", "a.yaml:1:5: l[0]: refers to itself: l[1] -> l[0] -> l[1]"},
      {"a: ${a.b}\n", ""},
      {"a: ${b.x}\nb: ${a.x}\n", ""},
  };
  for (const FaultyRecipe& reference_case : cases) {
    INFO(reference_case.input);
    const ResolvedRecipe recipe = resolve(reference_case.input);
    if (reference_case.expected.empty()) {
      CHECK(errors_of(recipe).find("leads to itself") != std::string::npos);
    } else {
      CHECK(errors_of(recipe) == reference_case.expected);
    }
    CHECK(same_recipe(recipe.value, parse_good_value(reference_case.input)));
  }
  CHECK(resolve("a: ${x}${y}\nb: ${z}\nc: {d: '${w}'}\n").problems.size() == 4);
}

TEST_CASE("expansion by references is bounded in size, depth and length of chains") {
  std::string laughs = "a0: [x, x, x, x, x, x, x, x, x, x]\n";
  std::string texts = "t0: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n";
  std::string nested = "n0: [x]\n";
  std::string chain = "c0: x\n";
  std::string follow = "f0: {x: {x: y}}\n";
  for (int i = 1; i < 100; ++i) {
    const std::string n = std::to_string(i);
    const std::string before = std::to_string(i - 1);
    laughs += "a" + n + ":";
    texts += "t" + n + ": ";
    for (int j = 0; j < 10; ++j) laughs += "\n- ${a" + before + "}";
    laughs += '\n';
    for (int j = 0; j < 10; ++j) texts += "${t" + before + "}";
    texts += '\n';
    nested += "n" + n + ":\n  - - - ${n" + before + "}\n";
    chain += "c" + n + ": ${c" + before + "}\n";
    follow += "f" + n + ": {x: '${f" + before + ".x.x}', y: '${f" + before + ".x}'}\n";
  }
  CHECK(errors_of(laughs).find("more than 100000 values, with references replaced") != std::string::npos);
  CHECK(errors_of(texts).find("more than 100000 values, with references replaced") != std::string::npos);
  CHECK(errors_of(nested).find("nested deeper than 64 levels, with references replaced") != std::string::npos);
  CHECK(errors_of(chain) == "");  // each is resolved when the next asks for it
  std::string backwards;
  for (int i = 0; i < 100; ++i) backwards += "c" + std::to_string(i) + ": ${c" + std::to_string(i + 1) + "}\n";
  CHECK(errors_of(backwards + "c100: x\n").find("more than 32 references that lead to each other") !=
        std::string::npos);
  CHECK(errors_of(follow) != "");
  std::string fallbacks = "x";
  for (int i = 0; i < 2000; ++i) fallbacks = "${env:TRAINRUN_TEST_UNSET:-" + fallbacks + "}";
  CHECK(errors_of("a: \"" + fallbacks + "\"\n").find("more than 8 defaults within each other") != std::string::npos);
}

// Blocks

TEST_CASE("within a block its own parameters stay, other references are replaced") {
  const std::string text =
      "width: 8\nname: n\n"
      "model:\n"
      "  blocks:\n"
      "    basic:\n"
      "      parameters: {channels: null, stride: 1, name: x, twice: '${channels}'}\n"
      "      layers:\n"
      "        - {type: Conv2d, out_channels: \"${channels}\", stride: '${stride}', k: '${width}', n: "
      "'${name}-${width}'}\n"
      "        - {type: X, mixed: '${width}/${channels}', literal: '$${channels}'}\n"
      "    plain: {layers: ['${width}', '${channels}']}\n"
      "  layers: ['${width}']\n";
  const ResolvedRecipe recipe = resolve(text);
  CHECK(errors_of(recipe) == "a.yaml:10:34: model.blocks.plain.layers[1]: ${channels}: no value named channels");
  const Value& layer = node_at(recipe.value, "model.blocks.basic.layers[0]");
  CHECK(node_at(layer, "out_channels").text() == "${channels}");
  CHECK(node_at(layer, "k").scalar_type() == ScalarType::kInteger);
  CHECK(node_at(layer, "n").text() == "${name}-8");
  CHECK(node_at(recipe.value, "model.blocks.basic.layers[1].mixed").text() == "8/${channels}");
  CHECK(node_at(recipe.value, "model.blocks.basic.parameters.twice").text() == "${channels}");
  const Value used = substitute(
      node_at(recipe.value, "model.blocks.basic.layers"),
      {{"channels", parse_good_value("64")}, {"stride", parse_good_value("2")}, {"name", parse_good_value("me")}});
  CHECK(same_meaning(used, parse_good_value("[{type: Conv2d, out_channels: 64, stride: 2, k: 8, n: me-8}, "
                                            "{type: X, mixed: 8/64, literal: '${channels}'}]")));
}

TEST_CASE("an expression becomes its value, wherever its names are") {
  check_resolves("a: 6\nb: ${a * 7}\nc: ${(a + 1) // 2}\nd: ${a / 4}\ne: ${not f}\nf: ${a > 5}\n", {},
                 "{a: 6, b: 42, c: 3, d: 1.5, e: false, f: true}");
  check_resolves("a: 6\nname: x-${a * 2}-${ a - 1 }\n", {}, "{a: 6, name: x-12-5}");
  check_resolves("l: [{n: 3}]\nx: ${l[0].n % 2 == 1 and true}\n", {}, "{l: [{n: 3}], x: true}");
  check_resolves("a-b: 1\nx: ${a-b}\n", {}, "{a-b: 1, x: 1}");
  check_resolves("a: 8\nx: ${b * 2}\nb: ${a / 4}\n", {}, "{a: 8, x: 4, b: 2}");
  check_resolves("x: $${a * 2}\n", {}, "{x: '${a * 2}'}");
}

TEST_CASE("an expression without a value is a problem at its place") {
  CHECK(errors_of("a: 6\nb: ${a // 0}\n") == "a.yaml:2:4: b: ${a // 0}: division by zero");
  CHECK(errors_of("a: 6\nb: ${a * }\n") == "a.yaml:2:4: b: ${a * }: an operand is missing at the end");
  CHECK(errors_of("a: [6]\nb: ${a * 2}\n") ==
        "a.yaml:2:4: b: ${a * 2}: a is a list, not a number, a text, true or false");
  CHECK(errors_of("width: 6\nb: ${widht * 2}\n") ==
        "a.yaml:2:4: b: ${widht * 2}: no value named widht; did you mean width?");
  CHECK(errors_of("a: 6\nb: ${a-1}\n") ==
        "a.yaml:2:4: b: ${a-1}: no value named a-1; to subtract, put spaces around the '-'");
  CHECK(errors_of("a: ${a + 1}\n").find("refers to itself") != std::string::npos);
  CHECK(errors_of("a: ${env:HOME * 2}\n").find("is not the name of an environment variable") != std::string::npos);
}

TEST_CASE("an expression of a block's parameters waits until the block is used") {
  const ResolvedRecipe recipe = resolve(
      "width: 8\nlast: x\n"
      "model: {blocks: {b: {parameters: {c: 1, last: false}, x: ['${c * 2 + width}', 'k${c // 2}-${width * 2}', "
      "'${not last}', '${width * 3}', '${c / 0}']}}}\n");
  CHECK(errors_of(recipe) == "");
  CHECK(node_at(recipe.value, "model.blocks.b.x[0]").text() == "${c * 2 + 8}");
  CHECK(node_at(recipe.value, "model.blocks.b.x[3]").text() == "24");
  std::vector<Problem> problems;
  const Value used = substitute(node_at(recipe.value, "model.blocks.b.x"),
                                {{"c", parse_good_value("64")}, {"last", parse_good_value("true")}}, &problems);
  CHECK(same_meaning(used, parse_good_value("[136, k32-16, false, 24, '${c / 0}']")));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].message == "${c / 0}: division by zero");
}

TEST_CASE("a parameter's near match is suggested within its block") {
  CHECK(errors_of("model: {blocks: {b: {parameters: {channels: 1}, layers: ['${chanels}']}}}\n") ==
        "a.yaml:1:58: model.blocks.b.layers[0]: ${chanels}: no value named chanels; did you mean the parameter "
        "channels?");
}

TEST_CASE("literal text that looks like a parameter is not taken for one when the block is used") {
  const EnvironmentVariable literal("TRAINRUN_TEST_D", "${c}");
  const ResolvedRecipe recipe = resolve(
      "text: $${c}\nhalf: '{c}'\ndollar: a$\n"
      "model: {blocks: {b: {parameters: {c: 1}, x: ['${text}', 'a${text}${c}', '${env:TRAINRUN_TEST_D}', "
      "'${dollar}{c}', '${env:TRAINRUN_TEST_UNSET:-${c}}']}}}\n");
  CHECK(errors_of(recipe) == "");
  const Value used = substitute(node_at(recipe.value, "model.blocks.b.x"), {{"c", parse_good_value("7")}});
  CHECK(same_meaning(used, parse_good_value("['${c}', 'a${c}7', '${c}', 'a${c}', 7]")));
  CHECK(errors_of("dollar: a$\nmodel: {blocks: {b: {parameters: {c: 1}, x: '${dollar}${c}'}}}\n")
            .find("a '$' comes to stand right before the ${…} of a parameter") != std::string::npos);
}

TEST_CASE("values of a block can be referred to, its parameters cannot") {
  const std::string block = "model:\n  blocks:\n    b: {parameters: {c: 64}, k: 3, lit: '$${c}', layers: ['${c}']}\n";
  check_resolves(
      block + "x: ${model.blocks.b.parameters.c}\ny: ${model.blocks.b.k}\nz: ${model.blocks.b.lit}\n", {},
      "{model: {blocks: {b: {parameters: {c: 64}, k: 3, lit: '$${c}', layers: ['${c}']}}}, x: 64, y: 3, z: '${c}'}");
  CHECK(errors_of(block + "x: ${model.blocks.b.layers}\n") ==
        "a.yaml:4:4: x: ${model.blocks.b.layers} holds the block's parameter ${c}, which has no value here");
  CHECK(errors_of(block + "x: ${model.blocks}\n") ==
        "a.yaml:4:4: x: ${model.blocks} holds blocks and cannot be copied; refer to what is inside it");
  CHECK(errors_of(block + "x: ${model}\n") ==
        "a.yaml:4:4: x: ${model} holds blocks and cannot be copied; refer to what is inside it");
}

// Writing

TEST_CASE("a resolved recipe that is written and resolved again is the same recipe") {
  const EnvironmentVariable literal("TRAINRUN_TEST_D", "a${b}$${c} $");
  const Workplace workplace;
  workplace.write("b.yaml", "optimizer: {type: AdamW, lr: 1e-3}\nmixed_precision: no\n");
  workplace.write("a.yaml",
                  "base: b.yaml\nname: x\nliteral: $${name}\ntwice: '$$${name}'\nenv: ${env:TRAINRUN_TEST_D}\nn: "
                  "~\nlr: ${optimizer.lr}\n"
                  "model:\n  blocks:\n    b:\n      parameters: {c: 1}\n      layers: ['${c}', 'x${c}${name}', "
                  "'$${c}', '${literal}', "
                  "'${env}']\n  layers: [b, {type: b, c: '$${c}'}]\n");
  const ResolvedRecipe first = resolve_recipe("a.yaml", {"optimizer.betas=[0.9, 0.99]", "name=y"});
  CHECK(errors_of(first) == "");
  workplace.write("runs/recipe.yaml", to_yaml(escape_interpolation(first.value)));
  const ResolvedRecipe second = resolve_recipe("runs/recipe.yaml", {});
  CHECK(errors_of(second) == "");
  INFO(to_yaml(first.value));
  INFO(to_yaml(second.value));
  CHECK(same_recipe(first.value, second.value));
  CHECK(node_at(second.value, "model.layers[1].c").text() == "${c}");
  CHECK(node_at(second.value, "env").text() == "a${b}$${c} $");
}

TEST_CASE("problems of all stages are reported together, sorted by place") {
  const Workplace workplace;
  workplace.write("b.yaml", "x: 1\nx: 2\n");
  workplace.write("a.yaml", "base: b.yaml\na: ${nope}\nc: !tag 1\n");
  CHECK(errors_of(resolve_recipe("a.yaml", {"bad", "l[0]=1"})) ==
        "a.yaml:2:4: a: ${nope}: no value named nope\n"
        "a.yaml:3:4: c: unknown tag !tag; a recipe's tags are !replace and !remove\n"
        "b.yaml:2:1: x: duplicate key; the first is on line 1\n"
        "command line:1:1: 'bad' has no '='; write key=value\n"
        "command line:2:1: l[0]: l is not in the recipe, so it has no items");
}

}  // namespace trainrun
