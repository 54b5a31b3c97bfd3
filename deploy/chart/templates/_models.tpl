{{- /* Pools and the sources of their models. */}}

{{- /* Every pool with its whole settings, as a JSON object by name. The model of the top level is
the pool `main`. */}}
{{- define "tandem.pools" -}}
{{- $pools := dict -}}
{{- $keys := list "model" "modelId" "aliases" "adapter" "capabilities" "eosTokenIds" "toggles" "renderModel" "modelFetch" "modelVolume" -}}
{{- $top := dict -}}
{{- range $keys -}}{{- $_ := set $top . (index $.Values .) -}}{{- end -}}
{{- if .Values.model -}}
{{- $_ := set $pools "main" (merge (deepCopy $top) (deepCopy .Values.generation)) -}}
{{- end -}}
{{- $empty := dict "model" "" "modelId" "" "aliases" list "adapter" "" "capabilities" list "eosTokenIds" list "toggles" dict "renderModel" "" "modelVolume" dict -}}
{{- $_ := set $empty "modelFetch" (dict "image" "" "command" list "args" list "env" list "envFrom" list "resources" dict "sizeLimit" "") -}}
{{- range $name, $pool := .Values.pools -}}
{{- if or (eq $name "main") (regexMatch "(^|-)headless$" $name) -}}
{{- fail (printf "pools.%s: the name %s is taken by the chart; choose another" $name $name) -}}
{{- end -}}
{{- if not $pool.model -}}
{{- fail (printf "pools.%s has no model: set pools.%s.model, such as pvc://CLAIM/PATH" $name $name) -}}
{{- end -}}
{{- $whole := mergeOverwrite (deepCopy $.Values.generation) (deepCopy $empty) (deepCopy $pool) -}}
{{- $_ := set $pools $name $whole -}}
{{- end -}}
{{- if not $pools -}}
{{- fail "no model is set: use --set model=pvc://CLAIM/PATH, or a source with oci://, host://, init:// or volume:// (values.yaml describes them)" -}}
{{- end -}}
{{- toJson $pools -}}
{{- end -}}

{{- /* The key of values.yaml that has the settings of a pool, for messages: the argument is {root, pool}. */}}
{{- define "tandem.settings" -}}
{{- ternary (printf "pools.%s" .pool) "generation" (hasKey (default dict .root.Values.pools) .pool) -}}
{{- end -}}

{{- /* The parts of a model's source, as JSON: kind, root (claim, image or folder), mount and file. The
argument is {pool, source}. */}}
{{- define "tandem.source" -}}
{{- $source := .source -}}
{{- $wrong := printf "%q is no source of a model: expected pvc://CLAIM/PATH, oci://IMAGE#PATH, host:///PATH, init://PATH or volume://PATH" $source -}}
{{- if not (regexMatch "^(pvc|oci|host|init|volume)://[^\\s]+$" $source) -}}{{- fail $wrong -}}{{- end -}}
{{- $kind := regexFind "^[a-z]+" $source -}}
{{- $rest := regexReplaceAll "^[a-z]+://" $source "" -}}
{{- $root := "" -}}{{- $path := "" -}}
{{- if eq $kind "pvc" -}}
{{- $root = regexFind "^[^/]+" $rest -}}{{- $path = trimPrefix $root $rest | trimAll "/" -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$" $root) -}}{{- fail $wrong -}}{{- end -}}
{{- else if eq $kind "oci" -}}
{{- $root = regexFind "^[^#]+" $rest -}}{{- $path = trimPrefix $root $rest | trimPrefix "#" | trimAll "/" -}}
{{- if not $root -}}{{- fail $wrong -}}{{- end -}}
{{- else if eq $kind "host" -}}
{{- if not (hasPrefix "/" $rest) -}}{{- fail (printf "%q must have an absolute path, with three slashes: host:///%s" $source $rest) -}}{{- end -}}
{{- $root = dir (trimSuffix "/" $rest) -}}{{- $path = base $rest -}}
{{- else -}}
{{- $path = trimAll "/" $rest -}}
{{- end -}}
{{- if has ".." (splitList "/" $path) -}}{{- fail (printf "%q must not contain .." $source) -}}{{- end -}}
{{- $mount := printf "/models/%s" .pool -}}
{{- if not $path -}}
{{- $mount = printf "%s/%s" $mount (regexReplaceAll "[@:].*$" (base $root) "") -}}
{{- end -}}
{{- $file := ternary (printf "%s/%s" $mount $path) $mount (ne $path "") -}}
{{- dict "kind" $kind "root" $root "mount" $mount "file" $file | toJson -}}
{{- end -}}

{{- /* The id of a pool's model in requests: the argument is {pool, settings}. */}}
{{- define "tandem.id" -}}
{{- $file := (include "tandem.source" (dict "pool" .pool "source" .settings.model) | fromJson).file -}}
{{- $name := regexReplaceAll "(?i)[.]gguf$" (base $file) "" -}}
{{- if regexMatch "/models--[^/]+/snapshots/[^/]+$" $file -}}
{{- $name = regexReplaceAll "^.*/models--([^/]+)/snapshots/[^/]+$" $file "${1}" | replace "--" "/" -}}
{{- end -}}
{{- default $name .settings.modelId -}}
{{- end -}}

{{- /* The same if the services would not find it themselves, else nothing: with `renderModel` they
have files of different names. */}}
{{- define "tandem.givenId" -}}
{{- if or .settings.modelId .settings.renderModel -}}{{ include "tandem.id" . }}{{- end -}}
{{- end -}}

{{- /* The volume of a model: the argument is {pool, source, settings}. */}}
{{- define "tandem.modelVolume" -}}
{{- $parts := include "tandem.source" . | fromJson -}}
- name: model-{{ .pool }}
{{- if eq $parts.kind "pvc" }}
  persistentVolumeClaim: {claimName: {{ $parts.root }}, readOnly: true}
{{- else if eq $parts.kind "oci" }}
  image: {reference: {{ $parts.root | quote }}, pullPolicy: IfNotPresent}
{{- else if eq $parts.kind "host" }}
  hostPath: {path: {{ $parts.root | quote }}, type: Directory}
{{- else if eq $parts.kind "init" }}
  {{- with .settings.modelFetch.sizeLimit }}
  emptyDir: {sizeLimit: {{ . }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- else }}
{{- if not .settings.modelVolume }}{{ fail (printf "%q needs modelVolume: the source of a volume, such as {csi: {driver: ..., readOnly: true}}" .source) }}{{ end }}
{{ toYaml .settings.modelVolume | indent 2 }}
{{- end }}
{{- end -}}

{{- /* The init container of an `init://` model, or nothing: the argument is {pool, source, settings}. */}}
{{- define "tandem.modelFetch" -}}
{{- $parts := include "tandem.source" . | fromJson -}}
{{- if eq $parts.kind "init" -}}
{{- $fetch := .settings.modelFetch -}}
{{- if not $fetch.image -}}{{- fail (printf "%q needs modelFetch.image: a container that writes the model below /models" .source) -}}{{- end -}}
- name: fetch-{{ .pool }}
  image: {{ $fetch.image | quote }}
  {{- with $fetch.command }}
  command: {{ toJson . }}
  {{- end }}
  {{- with $fetch.args }}
  args: {{ toJson . }}
  {{- end }}
  {{- with $fetch.env }}
  env: {{ toJson . }}
  {{- end }}
  {{- with $fetch.envFrom }}
  envFrom: {{ toJson . }}
  {{- end }}
  {{- with $fetch.resources }}
  resources: {{ toJson . }}
  {{- end }}
  securityContext: {{ include "tandem.containerSecurity" . }}
  volumeMounts:
  - {name: model-{{ .pool }}, mountPath: /models}
{{- end -}}
{{- end -}}

{{- /* A value in TOML: a scalar as in JSON, or a table in one line. */}}
{{- define "tandem.toml" -}}
{{- if kindIs "map" . -}}
{{- $fields := list -}}
{{- range $key, $value := . -}}
{{- $fields = append $fields (printf "%s = %s" (toJson $key) (include "tandem.toml" $value)) -}}
{{- end -}}
{ {{- join ", " $fields -}} }
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}

{{- /* The TOML file of models, or nothing if no pool needs it. */}}
{{- define "tandem.modelsToml" -}}
{{- if .Values.render.config -}}
{{ .Values.render.config }}
{{- else -}}
{{- range $name, $pool := include "tandem.pools" . | fromJson }}
{{- $id := include "tandem.givenId" (dict "pool" $name "settings" $pool) }}
{{- if or $id $pool.aliases $pool.adapter $pool.capabilities $pool.eosTokenIds $pool.toggles }}
{{- $parts := include "tandem.source" (dict "pool" $name "source" (default $pool.model $pool.renderModel)) | fromJson }}
[[models]]
path = {{ $parts.file | toJson }}
{{- with $id }}
id = {{ toJson . }}
{{- end }}
{{- with $pool.aliases }}
aliases = {{ toJson . }}
{{- end }}
{{- with $pool.adapter }}
adapter = {{ toJson . }}
{{- end }}
{{- with $pool.capabilities }}
capabilities = {{ toJson . }}
{{- end }}
{{- with $pool.eosTokenIds }}
eos_token_ids = {{ toJson . }}
{{- end }}
{{- with $pool.toggles }}
toggles = {{ include "tandem.toml" . }}
{{- end }}
{{ end }}
{{- end }}
{{- end -}}
{{- end -}}
