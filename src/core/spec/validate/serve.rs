//! Semantic validation of `serve`.

use super::setup::package;
use crate::ray::is_import_path;
use crate::spec::Spec;
use crate::spec::place::{Problem, item, join};
use crate::spec::variables::is_our_variable;
use crate::util::variable;

/// Adds all semantic problems of the applications.
pub(super) fn serve(spec: &Spec, problems: &mut Vec<Problem>) {
    for (index, application) in spec.serve.iter().enumerate() {
        let path = item("serve", index);
        let (name, prefix) = (&application.name, &application.route_prefix);
        if name.is_empty() || name.contains(|letter: char| letter.is_control() || "#/ ".contains(letter)) {
            problems.push(
                Problem::new(join(&path, "name"), format!("`{name}` cannot be an application's name"))
                    .note("use letters, digits, `-` and `_`"),
            );
        } else if spec.serve[..index].iter().any(|other| other.name == *name) {
            problems.push(Problem::new(join(&path, "name"), format!("`{name}` is the name of another application")));
        }
        if !is_import_path(&application.import_path) {
            problems.push(
                Problem::new(
                    join(&path, "import_path"),
                    format!("`{}` is not MODULE:VARIABLE", application.import_path),
                )
                .note("for example: app:food"),
            );
        }
        if !prefix.starts_with('/') || prefix.contains(|letter: char| letter.is_control() || "?# ".contains(letter)) {
            problems.push(
                Problem::new(join(&path, "route_prefix"), format!("`{prefix}` is not the beginning of a URL's path"))
                    .note("for example: /food"),
            );
        } else if spec.serve[..index].iter().any(|other| other.route_prefix == *prefix) {
            let problem = format!("`{prefix}` is that of another application");
            problems.push(Problem::new(join(&path, "route_prefix"), problem));
        }
        for (index, line) in application.pip.iter().enumerate() {
            if let Err(problem) = package(line) {
                problems.push(Problem { path: item(&join(&path, "pip"), index), ..*problem });
            }
        }
        for (name, value) in &application.env {
            let path = join(&join(&path, "env"), name);
            if is_our_variable(name) {
                problems.push(Problem::of_key(path, "is set by gpucl itself").note("leave it out"));
            } else if let Some(fault) = variable::fault(name, value) {
                problems.push(Problem::new(path, fault));
            }
        }
        for (index, text) in application.secrets.iter().enumerate() {
            let path = item(&join(&path, "secrets"), index);
            let mut earlier = application.secrets[..index].iter().filter_map(|text| variable::secret(text).ok());
            match variable::secret(text) {
                Err(why) => {
                    let problem = Problem::new(path, format!("`{text}` is not NAME or NAME=VARIABLE: {why}"));
                    problems.push(problem.note("for example: HF_TOKEN"));
                }
                Ok((_, name)) if is_our_variable(&name) => {
                    problems.push(Problem::new(path, format!("the variable {name} is set by gpucl itself")));
                }
                Ok((_, name)) if application.env.contains_key(&name) || earlier.any(|(_, one)| one == name) => {
                    problems.push(Problem::new(path, format!("the variable {name} is set twice")));
                }
                Ok(_) => {}
            }
        }
        for (index, options) in application.deployments.iter().enumerate() {
            if !options.get("name").is_some_and(serde_json::Value::is_string) {
                let path = item(&join(&path, "deployments"), index);
                problems.push(Problem::new(path, "has no `name`").note("for example: {name: Food, num_replicas: 2}"));
            }
        }
        if let Some(request) = &application.request {
            let is_path = request.path.is_empty() || request.path.starts_with(['/', '?']);
            if !is_path || request.path.contains(|letter: char| letter.is_control() || letter == ' ' || letter == '#') {
                problems.push(
                    Problem::new(
                        join(&join(&path, "request"), "path"),
                        format!("`{}` cannot follow a route prefix", request.path),
                    )
                    .note("for example: /predict"),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_has_its_place() {
        let places = |serve: &str| {
            let spec: Spec = serde_yaml::from_str(&format!("name: demo\nserve: {serve}\n")).unwrap();
            let mut problems = Vec::new();
            super::serve(&spec, &mut problems);
            problems.into_iter().map(|problem| problem.path).collect::<Vec<_>>()
        };
        let fine = "[{import_path: 'app:food', pip: [six], request: {path: /x, expect: {body: {a: 1}}}}, \
                    {name: b, import_path: 'a.b:c', route_prefix: /b}]";
        assert_eq!(places(fine), [""; 0]);
        assert_eq!(places("[{import_path: app}]"), ["serve[0].import_path"]);
        let twice = places("[{import_path: 'a:b'}, {import_path: 'a:b'}]");
        assert_eq!(twice, ["serve[1].name", "serve[1].route_prefix"]);
        assert_eq!(
            places("[{name: a/b, import_path: 'a:b', route_prefix: x}]"),
            ["serve[0].name", "serve[0].route_prefix"]
        );
        assert_eq!(places("[{import_path: 'a:b', pip: [./x], env: {GPUCL_SERVE: '0'}}]").len(), 2);
        let secrets = |secrets: &str| places(&format!("[{{import_path: 'a:b', env: {{A: b}}, secrets: {secrets}}}]"));
        assert_eq!(secrets("[HF_TOKEN, HF_TOKEN=TOKEN, B]"), [""; 0]);
        assert_eq!(
            secrets("[a-b, B=A, C, D=C, E=GPUCL_SERVE]"),
            [0, 1, 3, 4].map(|at| format!("serve[0].secrets[{at}]"))
        );
        assert_eq!(places("[{import_path: 'a:b', deployments: [{num_replicas: 2}]}]"), ["serve[0].deployments[0]"]);
        assert_eq!(places("[{import_path: 'a:b', request: {path: x}}]"), ["serve[0].request.path"]);
    }
}
