#include <algorithm>
#include <functional>

#include "runner/interop/python/drafts.h"

// From drafts to classes: lists of layers that have the same form become one class, and what differs between them its
// parameters.

namespace trainrun::python {
namespace {

std::string form(const Expression& expression) {
  if (!expression.is_call) return "?";
  std::string text = expression.text + "(";
  for (const auto& argument : expression.arguments) text += argument.name + ":" + form(argument.value) + ",";
  return text + ")";
}

/// What two drafts have in common if they can be one class.
std::string form(const Draft& draft) {
  std::string text = draft.title + "{";
  for (const auto& child : draft.children) {
    text += child.name + "=" + (child.inner ? form(*child.inner) : child.same_as + form(child.make)) + ";";
  }
  for (const auto& statement : draft.statements) text += statement.targets + "=" + statement.expression + ";";
  for (const auto& tie : draft.ties) text += tie + ";";
  return text + draft.result + "}";
}

/// The parameters of a class: which values differ between its instances.
class Unifier {
 public:
  explicit Unifier(size_t count) : arguments(count) {}

  /// The expressions of all instances, which have the same form, as one.
  Expression unify(const std::vector<const Expression*>& all, const std::string& name, const std::string& child) {
    if (!all[0]->is_call) return value(all, name, child);
    Expression result = *all[0];
    result.arguments.clear();
    for (size_t i = 0; i < all[0]->arguments.size(); ++i) {
      const auto& argument = all[0]->arguments[i];
      const bool is_default =
          std::all_of(all.begin(), all.end(), [&](const Expression* one) { return one->arguments[i].is_default; });
      if (is_default) continue;
      std::vector<const Expression*> values;
      for (const Expression* one : all) values.push_back(&one->arguments[i].value);
      Expression::Argument unified = argument;
      unified.is_default = false;
      unified.value = unify(values, argument.name, child);
      result.arguments.push_back(std::move(unified));
    }
    return result;
  }

  std::vector<std::string> names;
  std::vector<std::vector<Expression::Argument>> arguments;  // of each instance

 private:
  Expression value(const std::vector<const Expression*>& all, const std::string& name, const std::string& child) {
    std::vector<std::string> texts;
    for (const Expression* one : all) texts.push_back(one->text);
    if (std::all_of(texts.begin(), texts.end(), [&](const auto& text) { return text == texts[0]; })) return *all[0];
    const auto known = std::find(values_.begin(), values_.end(), texts);
    if (known != values_.end()) return Expression::code(names[static_cast<size_t>(known - values_.begin())]);
    std::string own = name;
    if (std::find(names.begin(), names.end(), own) != names.end())
      own = (is_identifier(child) ? child : "layer" + child) + "_" + name;
    names.push_back(own);
    values_.push_back(texts);
    const bool is_positional = arguments[0].empty() || own.starts_with("in_") || own.starts_with("out_");
    for (size_t i = 0; i < all.size(); ++i) arguments[i].push_back({own, *all[i], is_positional});
    return Expression::code(own);
  }

  std::vector<std::vector<std::string>> values_;
};

const Expression& made(const Draft::Child& child) { return child.inner ? child.inner->make : child.make; }

bool are_numbered(const Draft& draft) {
  for (size_t i = 0; i < draft.children.size(); ++i) {
    if (draft.children[i].name != std::to_string(i)) return false;
  }
  return true;
}

/// Modules that are alike in a row, as the arguments of a Sequential, at once.
Expression collapsed(const Expression& expression) {
  constexpr size_t kMany = 3;
  Expression result = expression;
  const auto& all = expression.arguments;
  const bool is_list = expression.text == "nn.Sequential" || expression.text == "super().__init__";
  if (is_list) result.arguments.clear();
  for (size_t i = 0; is_list && i < all.size();) {
    size_t end = i + 1;
    while (end < all.size() && one_line(all[end].value) == one_line(all[i].value)) ++end;
    if (end - i >= kMany) {
      const std::string count = std::to_string(end - i);
      result.arguments.push_back(
          {"", Expression::code("*(" + one_line(all[i].value) + " for _ in range(" + count + "))")});
    } else {
      end = i + 1;
      result.arguments.push_back(all[i]);
    }
    i = end;
  }
  for (auto& argument : result.arguments) argument.value = collapsed(argument.value);
  return result;
}

/// nn.Sequential's arguments for a chain.
std::vector<Expression::Argument> chain_arguments(const Draft& draft, const std::vector<Expression>& children,
                                                  SourceFile& file) {
  if (are_numbered(draft)) {
    std::vector<Expression::Argument> arguments;
    for (const Expression& child : children)
      arguments.push_back({std::to_string(arguments.size()), child, /*is_positional=*/true});
    return arguments;
  }
  file.import("from collections import OrderedDict");
  std::vector<Expression::Argument> named;
  for (size_t i = 0; i < children.size(); ++i) named.push_back({draft.children[i].name, children[i]});
  return {{"", Expression::call("OrderedDict", named)}};
}

std::string init_head(const std::vector<std::string>& parameters) {
  std::string text = "    def __init__(self";
  for (const std::string& name : parameters) text += ", " + name;
  return text + "):\n";
}

/// A class derived from nn.Sequential.
std::string chain_class(const std::string& name, const Draft& draft, const std::vector<Expression>& children,
                        const std::vector<std::string>& parameters, SourceFile& file) {
  const Expression call = Expression::call("super().__init__", chain_arguments(draft, children, file));
  return "class " + name + "(nn.Sequential):\n" + init_head(parameters) + written("", collapsed(call), 8);
}

std::string forward_of(const Draft& draft) {
  std::string text = "\n    def forward(self";
  for (const std::string& name : draft.inputs) text += ", " + name;
  text += "):\n";
  for (size_t i = 0; i < draft.statements.size(); ++i) {
    const auto& statement = draft.statements[i];
    const bool is_last = i + 1 == draft.statements.size();
    if (is_last && statement.targets == draft.result) return text + "        return " + statement.expression + "\n";
    if (statement.targets == statement.expression) continue;
    text += "        " + statement.targets + " = " + statement.expression + "\n";
  }
  return text + "        return " + draft.result + "\n";
}

/// A class with a `forward`.
std::string graph_class(const std::string& name, const Draft& draft, const std::vector<Expression>& children,
                        const std::vector<std::string>& parameters) {
  const bool has_numbers = std::any_of(draft.children.begin(), draft.children.end(),
                                       [](const auto& child) { return !is_identifier(child.name); });
  std::string text = "class " + name + "(nn." + (has_numbers ? "ModuleDict" : "Module") + "):\n";
  if (!children.empty()) {
    text += init_head(parameters) + "        super().__init__()\n";
    for (size_t i = 0; i < children.size(); ++i)
      text += written(access_to(draft.children[i].name) + " = ", collapsed(children[i]), 8);
    for (const std::string& tie : draft.ties) text += "        " + tie + "\n";
    return text + forward_of(draft);
  }
  return text + forward_of(draft).substr(1);
}

class Settler {
 public:
  explicit Settler(SourceFile& file) : file_(file) {}

  void settle(const std::vector<Draft*>& group, bool is_whole) {
    const Draft& draft = *group[0];
    const bool is_list = draft.is_chain && !is_whole && (!draft.is_block || group.size() == 1);
    if (is_list) {
      for (Draft* one : group) one->make = sequential(*one);
      return;
    }
    Unifier unifier(group.size());
    std::vector<Expression> children;
    for (size_t i = 0; i < draft.children.size(); ++i) {
      const auto& child = draft.children[i];
      if (!child.same_as.empty()) {
        children.push_back(Expression::code(access_to(child.same_as)));
        continue;
      }
      std::vector<const Expression*> all;
      for (const Draft* one : group) all.push_back(&made(one->children[i]));
      children.push_back(unifier.unify(all, "", child.name));
    }
    const std::string name = class_name(is_whole ? "Net" : draft.title);
    for (size_t i = 0; i < group.size(); ++i) {
      group[i]->make = Expression::call(name, unifier.arguments[i]);
    }
    file_.define("class " + name, draft.is_chain ? chain_class(name, draft, children, unifier.names, file_)
                                                 : graph_class(name, draft, children, unifier.names));
  }

 private:
  Expression sequential(const Draft& draft) {
    if (draft.children.empty()) return Expression::call("nn.Identity");
    std::vector<Expression> children;
    for (const auto& child : draft.children) children.push_back(made(child));
    return Expression::call("nn.Sequential", chain_arguments(draft, children, file_));
  }

  std::string class_name(const std::string& title) {
    std::string name = title;
    for (int number = 2; file_.has("class " + name) || file_.has(name) || (title != "Net" && name == "Net"); ++number) {
      name = title + std::to_string(number);
    }
    return name;
  }

  SourceFile& file_;
};

}  // namespace

void settle(const std::vector<std::shared_ptr<Draft>>& drafts, SourceFile& file) {
  std::vector<std::pair<std::string, std::vector<Draft*>>> groups;
  for (const auto& draft : drafts) {
    const std::string own = form(*draft);
    const auto known =
        std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == own; });
    if (known == groups.end()) {
      groups.push_back({own, {draft.get()}});
    } else {
      known->second.push_back(draft.get());
    }
  }
  Settler settler(file);
  for (const auto& [unused, group] : groups) settler.settle(group, group.back() == drafts.back().get());
}

}  // namespace trainrun::python
