#include "runner/recipe/recipe_source.h"

#include <filesystem>

#include "registry/language/interpolation.h"
#include "runner/base/limits.h"
#include "runner/recipe/merge.h"
#include "runner/recipe/yaml.h"
#include "tests/doctest.h"
#include "tests/runner/recipe_source_support.h"
#include "tests/runner/recipe_support.h"
#include "tests/support.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using test::check_resolves;
using test::EnvironmentVariable;
using test::errors_of;
using test::FaultyRecipe;
using test::node_at;
using test::parse_good_value;
using test::resolve;
using test::Workplace;

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
