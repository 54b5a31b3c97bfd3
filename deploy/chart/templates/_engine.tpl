{{- /* Another engine in place of gen-svc's. gen-bridge serves it. */}}

{{- /* Refuses settings of an engine that cannot work: the argument is {root, pool, tier}. */}}
{{- define "tandem.engine.check" -}}
{{- $key := include "tandem.settings" (dict "root" .root "pool" .pool) -}}
{{- $engine := .tier.engine -}}
{{- $own := dig .pool .root.Values.generation (default dict .root.Values.pools) -}}
{{- if not $engine.kind -}}
{{- if or (dig "engine" "url" "" $own) (dig "engine" "image" "" $own) -}}
{{- fail (printf "%s.engine.kind is empty: name the engine of engine.url or engine.image, such as llama-cpp" $key) -}}
{{- end -}}
{{- else -}}
{{- if and $engine.url $engine.image -}}
{{- fail (printf "%s.engine has a url and an image: set engine.url for an engine elsewhere, or engine.image for one in each pod" $key) -}}
{{- else if not (or $engine.url $engine.image) -}}
{{- fail (printf "%s.engine has no url and no image: set engine.url for an engine elsewhere, or engine.image for one in each pod" $key) -}}
{{- end -}}
{{- if ne (hasPrefix "https://" $engine.url) (ne $engine.caSecretName "") -}}
{{- fail (printf "%s.engine.caSecretName and engine.url with https:// need each other: the image has no authorities" $key) -}}
{{- end -}}
{{- range list "flags" "env" "envFrom" -}}
{{- if get $own . -}}
{{- fail (printf "%s.%s is a setting of gen-svc, which %s.engine replaces: use %s.engine.bridge.%s" $key . $key $key .) -}}
{{- end -}}
{{- end -}}
{{- range $_, $part := dig "image" dict $own -}}
{{- if $part -}}
{{- fail (printf "%s.image is a setting of gen-svc, which %s.engine replaces: use %s.engine.bridge.image" $key $key $key) -}}
{{- end -}}
{{- end -}}
{{- if .tier.textOnly -}}
{{- fail (printf "%s.textOnly is an image of gen-svc, which %s.engine replaces: leave it out" $key $key) -}}
{{- end -}}
{{- if $engine.url -}}
{{- if .tier.gpu.enabled -}}
{{- fail (printf "%s.gpu.enabled gives GPUs to pods that do not compute: the engine at %s.engine.url has its own" $key $key) -}}
{{- end -}}
{{- if ne .tier.autoscaling.kind "none" -}}
{{- fail (printf "%s.autoscaling would add bridges and no engine: scale the engine at %s.engine.url itself" $key $key) -}}
{{- end -}}
{{- with .root.Values.networkPolicy -}}
{{- if and .enabled .egress.enabled (not .egress.rules) -}}
{{- fail (printf "networkPolicy.egress blocks %s.engine.url: add a rule for it to networkPolicy.egress.rules" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The bridge's flags of the engine; the argument is .engine of a tier. */}}
{{- define "tandem.engine.flags" -}}
- --engine={{ .kind }}
- --engine-url={{ .url | default (printf "http://127.0.0.1:%d" (int .port)) }}
{{- if .caSecretName }}
- --engine-ca=/etc/tandem/engine-ca/ca.crt
{{- end }}
{{- if .tokenSecretName }}
- --engine-token-file=/etc/tandem/engine-token/tokens
{{- end }}
{{- end -}}

{{- /* The bridge's mounts and volumes for the engine; the argument is .engine of a tier. */}}
{{- define "tandem.engine.mounts" -}}
{{- if .caSecretName }}
- {name: engine-ca, mountPath: /etc/tandem/engine-ca, readOnly: true}
{{- end }}
{{- if .tokenSecretName }}
- {name: engine-token, mountPath: /etc/tandem/engine-token, readOnly: true}
{{- end }}
{{- end -}}

{{- define "tandem.engine.volumes" -}}
{{- if .caSecretName }}
- name: engine-ca
  secret: {secretName: {{ .caSecretName }}, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
{{- if .tokenSecretName }}
- name: engine-token
  secret: {secretName: {{ .tokenSecretName }}, defaultMode: 0440}
{{- end }}
{{- if .image }}
- name: engine-tmp
  emptyDir: {}
{{- with .sharedMemory }}
- name: engine-memory
  emptyDir: {medium: Memory, sizeLimit: {{ . }}}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The engine as a container of the pod: the argument is {root, pool, settings, source}. Kubernetes starts such an
init container before the bridge, waits for its startup probe, and sends it SIGTERM after the bridge has ended: so the
bridge drains while the engine still runs. Its readiness is part of the pod's. */}}
{{- define "tandem.engine.container" -}}
{{- $engine := .settings.engine -}}
{{- $parts := include "tandem.source" . | fromJson -}}
{{- $resources := deepCopy $engine.resources -}}
{{- with .settings.gpu -}}
{{- if .enabled -}}
{{- $resources = mergeOverwrite $resources (dict "limits" (dict .resourceName (int .count))) -}}
{{- end -}}
{{- end -}}
{{- $security := include "tandem.containerSecurity" .root | fromYaml -}}
{{- $probe := ternary (dict "httpGet" (dict "path" $engine.healthPath "port" "engine")) (dict "tcpSocket" (dict "port" "engine")) (ne $engine.healthPath "") -}}
- name: engine
  image: {{ $engine.image | quote }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  restartPolicy: Always
  {{- with $engine.command }}
  command: {{ toJson . }}
  {{- end }}
  {{- with $engine.args }}
  args: {{ toJson . }}
  {{- end }}
  env:
  - {name: MODEL, value: {{ $parts.file | quote }}}
  - {name: MODEL_ID, value: {{ include "tandem.id" . | quote }}}
  - {name: PORT, value: {{ $engine.port | quote }}}
  # The root file system is read-only, and the user has no name and no home in the image.
  - {name: HOME, value: /tmp}
  - {name: USER, value: engine}
  {{- with $engine.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with $engine.envFrom }}
  envFrom: {{- toYaml . | nindent 2 }}
  {{- end }}
  ports:
  - {name: engine, containerPort: {{ $engine.port }}}
  startupProbe: {{ merge (dict "periodSeconds" 2 "timeoutSeconds" 2 "failureThreshold" (max 1 (div .settings.startupSeconds 2))) $probe | toJson }}
  readinessProbe: {{ merge (dict "periodSeconds" 5 "timeoutSeconds" 5 "failureThreshold" 2) $probe | toJson }}
  # A busy engine may answer late. The bridge notices sooner that the engine does not answer.
  livenessProbe: {{ merge (dict "periodSeconds" 10 "timeoutSeconds" 10 "failureThreshold" 6) $probe | toJson }}
  resources: {{ toJson $resources }}
  securityContext: {{ mergeOverwrite $security (deepCopy $engine.securityContext) | toJson }}
  volumeMounts:
  - {name: model-{{ .pool }}, mountPath: {{ $parts.mount }}, readOnly: true}
  - {name: engine-tmp, mountPath: /tmp}
  {{- if $engine.sharedMemory }}
  - {name: engine-memory, mountPath: /dev/shm}
  {{- end }}
  {{- with $engine.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
