#include "runner/model/monitor_modes.h"

#include <algorithm>

#include "registry/language/figure_name.h"

namespace trainrun {
namespace {

std::string word_of(MonitorMode mode) { return Words<MonitorMode>::kWords[static_cast<size_t>(mode)]; }

/// Settles the mode of one watcher after another.
class Modes {
 public:
  Modes(const std::vector<EvaluationFigure>& figures, Reader& reader) : figures_(figures), reader_(reader) {}

  /// Of the watcher that `map` says, with its parameter `monitor`: true where `map` got a mode.
  bool settle(const std::string& monitor, Value& map, const std::string& path) {
    auto figure = std::ranges::find(figures_, monitor, &EvaluationFigure::name);
    if (figure == figures_.end()) {
      figure = std::ranges::find(figures_, present_figure_name(monitor), &EvaluationFigure::name);
      if (figure == figures_.end()) return false;  // told by check_monitors
      const Value* written = map.find("monitor");
      notes.push_back({written ? written->place() : map.place(), path + ".monitor",
                       "'" + monitor + "' is called " + figure->name + " now"});
    }
    const Value* mode = map.find("mode");
    if (mode && !mode->is_null()) {
      note_contradiction(*figure, *mode, path);
      return false;
    }
    if (!figure->better) {
      const Value* written = map.find("monitor");
      const auto scope = reader_.enter(path + ".monitor");
      reader_.error(
          written ? written->place() : map.place(),
          "whether a smaller or a larger '" + monitor + "' is better is not known; write mode: min or mode: max");
      return false;
    }
    if (figure->better == MonitorMode::kMin) return false;  // as it is without a word
    map.set("mode", map.place(), Value::scalar(word_of(*figure->better), false, map.place()));
    return true;
  }

  std::vector<Problem> notes;

 private:
  void note_contradiction(const EvaluationFigure& figure, const Value& mode, const std::string& path) {
    if (!figure.better || !mode.is_scalar() || mode.text() == word_of(*figure.better)) return;
    notes.push_back({mode.place(), path + ".mode",
                     "is " + mode.text() + ", but a " + (figure.better == MonitorMode::kMax ? "larger" : "smaller") +
                         " '" + figure.name +
                         "' is better: with this mode the worst checkpoint would be kept as the best; leave mode out"});
  }

  const std::vector<EvaluationFigure>& figures_;
  Reader& reader_;
};

/// The component `written` at `map`, once more where its mode was settled.
template <class Kind>
void settle_component(Component<Kind>& component, Value& map, Modes& modes, Reader& reader) {
  const auto& own = component.attributes;
  const bool has_mode = own.contains("mode") && (own["mode"] == "min" || own["mode"] == "max");
  const bool watches = map.is_map() && has_mode && own.contains("monitor") && own["monitor"].is_string();
  if (!watches || !modes.settle(own["monitor"].template get<std::string>(), map, component.path)) return;
  const auto scope = reader.enter(component.path);
  if (auto settled = Codec<Component<Kind>>::read(map, reader)) component = std::move(*settled);
}

}  // namespace

std::vector<Problem> settle_modes(Recipe& recipe, const std::vector<EvaluationFigure>& figures, Value& value,
                                  Reader& reader) {
  Modes modes(figures, reader);
  if (auto& keep_best = recipe.checkpoint.keep_best) {
    Value& map = *value.find("checkpoint")->find("keep_best");
    if (modes.settle(keep_best->monitor, map, "checkpoint.keep_best")) keep_best->mode = MonitorMode::kMax;
  }
  if (recipe.scheduler) settle_component(*recipe.scheduler, *value.find("scheduler"), modes, reader);
  for (size_t i = 0; i < recipe.callbacks.size(); ++i) {
    settle_component(recipe.callbacks[i], value.find("callbacks")->items()[i], modes, reader);
  }
  return modes.notes;
}

}  // namespace trainrun
